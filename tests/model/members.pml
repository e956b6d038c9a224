/*
 * members.pml - memberships that the first aggregator decides: docs/MEMBERS.md, for SPIN
 *
 * N workers, the decider, and another aggregator. A worker keeps one connection to the decider, whose
 * lines keep their order; if it is lost it makes another one, and the lines of the two overtake each
 * other. A worker dies; an aggregator restarts and has stored nothing; either side gives a connection
 * up, and the other notices when it likes, lines unread (a path that breaks, a process that freezes):
 * FAULTS of these, at any moment. What is said to the other aggregator takes no time here.
 *
 * Asked at each operation that completes: no later membership has completed one before; and a worker
 * of the last that has is in this one, if any of them lives. Asked when nothing moves any more: each
 * worker that lives runs in the decider's membership, or waits at its door because no member is left
 * to the decider's knowledge.
 *
 * Time-outs are longer than whatever is under way; with -DHASTY they pass at any moment, and only the
 * first is asked. -DHOLE=n leaves a rule out, which must be found: 1 an operation may go without the
 * decider (HASTY); 2 a decider that has restarted does not wait for all; 3 a lost NEXT makes a newcomer
 * of a member; 4 newcomers go on without anybody who has the state. -DV2: half of the last membership
 * may go on at the other aggregator, unless this knows of a later one, as in version 2 of the protocol.
 */
#define M 6 /* memberships are 1 to M - 1, in the order in which they are named */
#define BIT(i) (1 << (i))
#define SIZE(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2))
#define HAS(set, i) (((set) >> (i)) & 1)
#if N > 2
#define EACH(f) f(0) f(1) f(2) f(3) f(4) f(5)
#define ANY(f) (f(0) || f(1) || f(2))
#define RUNNERS (RUNS(0) || RUNS(1) || RUNS(2))
#else
#define EACH(f) f(0) f(1) f(2) f(3)
#define ANY(f) (f(0) || f(1))
#define RUNNERS (RUNS(0) || RUNS(1))
#endif

mtype = { JOIN, STAY, DOOR, NEXT, START, FAILED, REFUSED };  /* lines */
mtype = { RUN, JOINING, STAYING, AWAY, NEW, DEAD };          /* a worker */
mtype = { IDLE, FORMING, RUNNING, ENDED };                   /* the decider; IDLE: it knows of none */
mtype = { NOBODY, MEMBER, STAYED, NEWCOMER };                /* who is at a connection, to the decider */

/* Memberships. A side that looks one up here has been told of it by a line. */
byte named = 1, last;                         /* the newest; the last that has completed an operation */
byte mem[M], before[M], sent[M];              /* members; the one before; they have announced */
bool pair[M], did[M], bound[M];               /* with the other aggregator; completed one; will admit */

/* Connections to the decider: worker i's are 2i and 2i + 1, in turn. */
chan up[2 * N] = [3] of { mtype, byte, byte, byte };         /* line, membership, begun, ALONE and HOLDS */
chan dn[2 * N] = [5] of { mtype, byte };
bool wo[2 * N], ao[2 * N];                                   /* open to the worker; to the decider */
mtype is[2 * N] = NOBODY;
byte in[2 * N], said[2 * N];                                 /* it says: its membership, the last begun */
byte says[2 * N];
#define ALONE 1 /* the other aggregator is lost to it */
#define HOLDS 2 /* it has the state */

mtype ph[N] = RUN;
byte job[N], begun[N];
bool started[N], lost[N], turn[N], holds[N];  /* holds: the state of the job */
bool wronged[N];                              /* it was refused, and the decider knew of no other one that held it */

mtype phase = RUNNING;
byte cur = 1, joined, faults = FAULTS;
byte stand, stay, most; /* in cur: who is connected, who stays; IDLE: the last that any of these has begun */
bool less, hold;
byte from[N]; /* the membership that a worker has last said STAY of */
byte here[M];                                                /* at the other aggregator: who has joined */
bool runs[M];

#define C(i) (2 * (i) + turn[i])
#define FREE(i) (!wo[2 * (i) + 1 - turn[i]] && !ao[2 * (i) + 1 - turn[i]])
#define IN_IT(i) (ph[i] == RUN || ph[i] == JOINING)
#define KNOWN(c) (is[c] == MEMBER || is[c] == STAYED)
#define HOLDER(i) (holds[i] && (KNOWN(2 * (i)) || KNOWN(2 * (i) + 1)))
#define FAULT faults > 0 -> faults--

#ifdef V2
bool alone[M], follows[M]; /* without the decider; the other one knows that another has followed */
#define FOLLOW(id) follows[id] = true
#define FORGET follows[1] = false; follows[2] = false; follows[3] = false
#define HERE(id) (alone[id] || phase == RUNNING && cur == id)
#else
#define FOLLOW(id) skip
#define FORGET skip
#define HERE(id) (phase == RUNNING && cur == id || HOLE == 1 && pair[id])
#endif
#if defined(HASTY) || defined(V2)
#define CALM false
#else
#define CALM true
#endif
/* ---- a worker ---- */
inline leave(c) { d_step { wo[c] = false; do :: len(dn[c]) > 0 -> dn[c]?_,_ :: else -> break od } }
inline connect(w) {
	turn[w] = 1 - turn[w]; wo[C(w)] = true; ao[C(w)] = true;
	d_step { do :: len(dn[C(w)]) > 0 -> dn[C(w)]?_,_ :: len(up[C(w)]) > 0 -> up[C(w)]?_,_,_,_ :: else -> break od }
}
inline part(v) { /* from the other aggregator, which ends the membership for the others */
	here[job[v]] = here[job[v]] & ~BIT(v); runs[job[v]] = false
}
inline over(w) { /* its membership is */
	part(w); started[w] = false;
	if
	:: wo[C(w)] -> ph[w] = STAYING; up[C(w)]!STAY,job[w],begun[w],lost[w] + HOLDS * holds[w]
	:: else -> ph[w] = AWAY
	fi
}

proctype worker(byte i) {
	mtype kind; byte x;
end:	do
	:: atomic { ph[i] == RUN && did[job[i]] && !holds[i] -> holds[i] = true } /* it has got the state */
	:: atomic { ph[i] == RUN && bound[job[i]] && wo[C(i)] -> over(i) }
	:: atomic { IN_IT(i) && pair[job[i]] && (!HAS(here[job[i]], i) || ph[i] == RUN && !runs[job[i]]) ->
		lost[i] = !HAS(here[job[i]], i); over(i) }
	:: atomic { wo[C(i)] && len(dn[C(i)]) > 0 ->
		dn[C(i)]?kind,x;
		if :: kind == START && ph[i] == JOINING && x == job[i] -> started[i] = true; begun[i] = x
		:: kind == FAILED && IN_IT(i) && x == job[i] -> over(i)
		:: kind == REFUSED -> ph[i] = NEW; job[i] = 0; begun[i] = 0; holds[i] = false; leave(C(i))
		:: kind == NEXT ->
			job[i] = x; ph[i] = JOINING; lost[i] = false; up[C(i)]!JOIN,x,0,0;
			here[x] = here[x] | BIT(i); FOLLOW(before[x]); runs[x] = (here[x] == mem[x])
		:: else fi; x = 0; kind = 0 }
	:: atomic { wo[C(i)] && !ao[C(i)] && len(dn[C(i)]) == 0 ->
		leave(C(i)); if :: IN_IT(i) -> over(i) :: ph[i] == STAYING -> ph[i] = AWAY :: else fi }
	:: atomic { ph[i] == JOINING && started[i] && (!pair[job[i]] || runs[job[i]]) ->
		ph[i] = RUN; started[i] = false; sent[job[i]] = sent[job[i]] | BIT(i) }
	:: atomic { ph[i] == AWAY && FREE(i) -> connect(i); ph[i] = STAYING; up[C(i)]!STAY,job[i],begun[i],lost[i] + HOLDS * holds[i] }
#ifdef V2
	:: atomic { ph[i] == AWAY && i == 0 && !follows[begun[i]] && named < M - 1 ->
		named++; mem[named] = BIT(i); before[named] = begun[i]; alone[named] = true; sent[named] = BIT(i);
		job[i] = named; begun[i] = named; ph[i] = RUN }
#endif
	:: atomic { ph[i] == NEW && !wo[C(i)] && FREE(i) -> connect(i); up[C(i)]!DOOR,0,0,0 }
	:: atomic { ph[i] != DEAD && FAULT; part(i); leave(2 * i); leave(2 * i + 1); ph[i] = DEAD }
	:: atomic { wo[C(i)] && FAULT; leave(C(i)); /* gives the decider up, or loses the other one */
		if :: IN_IT(i) -> over(i) :: ph[i] == STAYING -> ph[i] = AWAY :: else fi }
	:: atomic { HAS(here[job[i]], i) && FAULT; part(i) }
	od
}

/* ---- the decider ---- */
#define REFUSE(c) dn[c]!REFUSED,0; is[c] = NOBODY; wronged[c / 2] = holds[c / 2] && !ANY(HOLDER)
#define TELL_START(c) if :: ao[c] && is[c] == MEMBER -> dn[c]!START,cur :: else fi;
#define TELL_FAILED(c) if :: ao[c] && is[c] == MEMBER -> dn[c]!FAILED,cur :: else fi;
#define MOST(c) if :: ao[c] && is[c] == STAYED && phase == IDLE && said[c] > most -> most = said[c] :: else fi;
#define COUNT(c) if \
	:: ao[c] && is[c] == MEMBER -> stand = stand | BIT(c / 2) \
	:: ao[c] && is[c] == STAYED && (in[c] == most || phase == IDLE && (said[c] == most || in[c] > most)) -> \
		stay = stay | BIT(c / 2); less = less || (says[c] & ALONE); hold = hold || (says[c] & HOLDS) \
	:: else fi;
inline count() {
	d_step { stand = 0; stay = 0; most = cur; less = false; hold = HOLE == 4;
	EACH(MOST) EACH(COUNT)
	if :: phase == ENDED && stand == 0 && stay == 0 -> phase = IDLE; cur = 0; most = 0 :: else fi } /* nobody is left */
}
inline finish() { phase = ENDED; EACH(TELL_FAILED) }
inline gone(c) { /* a connection ends; if a member's, its membership does */
	x = (is[c] == MEMBER || is[c] == STAYED) && (phase == FORMING || phase == RUNNING);
	d_step { ao[c] = false; is[c] = NOBODY; in[c] = 0; said[c] = 0; says[c] = 0;
		do :: len(up[c]) > 0 -> up[c]?_,_,_,_ :: else -> break od };
	if :: x -> finish() :: else fi; x = 0
}

/* Time-outs are longer than anything that is still under way: none of those who are missing is to come. */
#define COMES(i) (CALM && ph[i] != DEAD && ph[i] != NEW && (phase == IDLE && !(ph[i] == STAYING && is[C(i)] == STAYED) || \
	phase != IDLE && !HAS(stay, i) && HAS(mem[cur], i) && (job[i] == cur || from[i] == job[i] && job[i] != 0)))
#define TELL_NEXT(c) if \
	:: ao[c] && is[c] == STAYED && HAS(stay, c / 2) -> dn[c]!NEXT,named; is[c] = MEMBER; in[c] = named \
	:: ao[c] && is[c] == STAYED && !HAS(stay, c / 2) -> REFUSE(c) \
	:: ao[c] && is[c] == NEWCOMER && bound[most] && stay == mem[most] -> \
		mem[named] = mem[named] | BIT(c / 2); dn[c]!NEXT,named; is[c] = MEMBER; in[c] = named \
	:: else fi;
inline name() { /* those who stay, and at a boundary the newcomers */
	named++; mem[named] = stay; before[named] = most; pair[named] = !less;
	EACH(TELL_NEXT)
	cur = named; phase = FORMING; joined = 0; count()
}
#define MAY_STAY(i) (phase == IDLE || x == cur || HOLE != 3 && x == from[i] && HAS(mem[cur], i) && !HAS(joined, i))

proctype connection(byte k) {
	byte x, y, z; mtype kind;
end:	do
	:: atomic { ao[k] && len(up[k]) > 0 ->
		up[k]?kind,x,y,z;
		if :: kind == DOOR -> is[k] = NEWCOMER; from[k / 2] = 0
		:: kind == JOIN && is[k] == MEMBER && x == cur && phase == FORMING ->
			joined = joined | BIT(k / 2);
			if :: joined == mem[x] -> phase = RUNNING; EACH(TELL_START) :: else fi
		:: kind == STAY && MAY_STAY(k / 2) ->
			from[k / 2] = x; in[k] = (phase == IDLE -> x : cur); said[k] = y; says[k] = z; is[k] = STAYED;
			if :: ao[k ^ 1] -> gone(k ^ 1) :: else fi; /* its connection of before */
			count();
			if :: phase == RUNNING && bound[cur] && stay == mem[cur] -> phase = ENDED
			:: phase == FORMING || phase == RUNNING && !bound[cur] -> finish()
			:: else fi
		:: kind == STAY && !MAY_STAY(k / 2) -> REFUSE(k)
		:: else fi; count(); x = 0; y = 0; z = 0; kind = 0 }
	:: atomic { ao[k] && !wo[k] && (len(up[k]) == 0 || is[k] == STAYED || is[k] == NEWCOMER) -> gone(k); count() }
	:: atomic { ao[k] && FAULT; gone(k); count() } /* the decider gives it up */
	od
}

#define TELL_REFUSED(c) if :: ao[c] && is[c] == STAYED -> REFUSE(c) :: else fi;
#define GONE(c) gone(c);
proctype decider() {
	byte x;
end:	do
	:: atomic { phase == ENDED && stand == 0 && hold && named < M - 1 -> name() }
	:: atomic { phase == IDLE && most != 0 && hold && named < M - 1 && (SIZE(stay) >= SIZE(mem[most]) || HOLE == 2 || !ANY(COMES)) -> name() }
	:: atomic { (phase == ENDED && stand == 0 || phase == IDLE) && stay != 0 && !hold && !ANY(COMES) ->
		EACH(TELL_REFUSED) phase = IDLE; cur = 0; count() }
#ifndef V2
	:: atomic { FAULT; phase = IDLE; cur = 0; EACH(GONE) joined = 0; count() } /* it restarts */
#endif
	od
}

/* ---- operations, and the other aggregator ---- */
#define LIVES(i) (HAS(mem[last], i) && ph[i] != DEAD && ph[i] != NEW)
#define WAITS(i) (ph[i] == NEW)
#define RUNS(i) (ph[i] == RUN)

proctype operations(byte id) {
end:	do
	:: atomic { id <= named && last != id && HERE(id) && sent[id] == mem[id] && (!pair[id] || runs[id]) ->
		assert(!did[id]);
		assert(!CALM || last == 0 || (mem[id] & mem[last]) != 0 || !ANY(LIVES));
		did[id] = true; last = id }
	:: atomic { cur == id && phase == RUNNING && last == id && !bound[id] && ANY(WAITS) -> bound[id] = true }
	od
}

proctype other() {
end:	do
	:: atomic { FAULT; here[cur] = 0; runs[cur] = false; FORGET }
	od
}

#define STUCK(i) !(ph[i] == DEAD || ph[i] == RUN && job[i] == cur && phase == RUNNING || ph[i] == NEW && !RUNNERS && !wronged[i])

init {
	byte i;
	atomic {
		mem[1] = BIT(N) - 1; here[1] = mem[1]; pair[1] = true; runs[1] = true; sent[1] = mem[1]; stand = mem[1]; most = 1;
		for (i : 0 .. N - 1) { job[i] = 1; begun[i] = 1; holds[i] = true; wo[2 * i] = true; ao[2 * i] = true; is[2 * i] = MEMBER; in[2 * i] = 1;
			run worker(i); run connection(2 * i); run connection(2 * i + 1) }
		for (i : 1 .. M - 1) { run operations(i) }
		run decider(); run other(); i = 0 }
	timeout -> assert(!CALM || named == M - 1 || !ANY(STUCK))
}
