# SPDX-License-Identifier: BSD-3-Clause
"""TLS 1.3 with an external PSK: PROTOCOL.md 5.2. By ctypes on OpenSSL, since Python's ssl has no PSKs before 3.13."""

import ctypes as c
import ctypes.util

crypto, ssl = (c.CDLL(ctypes.util.find_library(name)) for name in ("crypto", "ssl"))
FIND = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(c.c_size_t), c.POINTER(c.c_void_p))
TLS13, SET_MIN_VERSION, WANT_READ, PENDING = 0x0304, 123, 2, 10
LABEL = b"EXPORTER-winnow-seal"


def declare(library, result, *names):
    for name in names:
        getattr(library, name).restype = result


declare(ssl, c.c_void_p, "TLS_client_method", "SSL_CTX_new", "SSL_new", "SSL_SESSION_new", "SSL_CIPHER_find")
declare(crypto, c.c_void_p, "BIO_new", "BIO_s_mem")
declare(ssl, None, "SSL_set_bio", "SSL_free", "SSL_CTX_free", "SSL_set_connect_state", "SSL_CTX_set_psk_use_session_callback")
p = c.c_void_p


class Tls:
    """A client's end. Bytes go in and out; so do those that they carry."""

    def __init__(self, identity, key):
        self.identity, self.key = c.create_string_buffer(identity.encode()), key
        self.find = FIND(self.offer)  # which must live as long as the context
        self.context = p(ssl.SSL_CTX_new(p(ssl.TLS_client_method())))
        ssl.SSL_CTX_ctrl(self.context, SET_MIN_VERSION, c.c_long(TLS13), None)
        ssl.SSL_CTX_set_psk_use_session_callback(self.context, self.find)
        self.ssl = p(ssl.SSL_new(self.context))
        self.arrived, self.leaving = (p(crypto.BIO_new(p(crypto.BIO_s_mem()))) for _ in range(2))
        ssl.SSL_set_bio(self.ssl, self.arrived, self.leaving)
        ssl.SSL_set_connect_state(self.ssl)
        self.begun = self.failed = False  # begun: the other side has answered
        self.said()

    def __del__(self):
        ssl.SSL_free(self.ssl)
        ssl.SSL_CTX_free(self.context)

    def offer(self, connection, hash, identity, length, session):
        made = p(ssl.SSL_SESSION_new())
        ssl.SSL_SESSION_set1_master_key(made, self.key, c.c_size_t(len(self.key)))
        ssl.SSL_SESSION_set_cipher(made, p(ssl.SSL_CIPHER_find(p(connection), b"\x13\x01")))  # AES-128-GCM, SHA-256
        ssl.SSL_SESSION_set_protocol_version(made, TLS13)
        identity[0], length[0], session[0] = c.addressof(self.identity), len(self.identity.value), made.value
        return 1

    def ready(self):
        """The handshake is over, and the other side has the key: it may as well have shown a certificate."""
        return bool(ssl.SSL_is_init_finished(self.ssl) and ssl.SSL_session_reused(self.ssl))

    def feed(self, data):
        self.begun = True
        crypto.BIO_write(self.arrived, data, len(data))

    def said(self):
        """What the other side has said."""
        text, room = b"", c.create_string_buffer(16384)
        while (count := ssl.SSL_read(self.ssl, room, len(room))) > 0:
            text += room.raw[:count]
        self.failed = self.failed or ssl.SSL_get_error(self.ssl, count) != WANT_READ
        if bool(ssl.SSL_is_init_finished(self.ssl)) != self.ready():
            self.failed, text = True, b""
        return text

    def say(self, data):
        assert not data or ssl.SSL_write(self.ssl, data, len(data)) == len(data)

    def pull(self):
        """Bytes for the other side."""
        room = c.create_string_buffer(max(1, crypto.BIO_ctrl(self.leaving, PENDING, c.c_long(0), None)))
        count = crypto.BIO_read(self.leaving, room, len(room))
        return room.raw[: max(0, count)]

    def seal_key(self, membership):
        """5.2: what this worker's datagrams in a membership are sealed with."""
        out, name = c.create_string_buffer(16), membership.encode()
        label, size = c.c_size_t(len(LABEL)), c.c_size_t(len(name))
        assert ssl.SSL_export_keying_material(self.ssl, out, c.c_size_t(16), LABEL, label, name, size, 1) == 1
        return out.raw
