{{/* What names our objects, and selects our pods. */}}
{{- define "winnow.labels" -}}
app.kubernetes.io/name: winnow
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "winnow.workerLabels" -}}
app.kubernetes.io/name: winnow-worker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The list for workers: each pod of the StatefulSet by its name in the headless Service. */}}
{{- define "winnow.aggregators" -}}
{{- $name := .Release.Name -}}
{{- $list := list -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $list = append $list (printf "%s-%d.%s:5555" $name $i $name) -}}
{{- end -}}
{{- join "," $list -}}
{{- end }}

{{/* What values.schema.json cannot say. */}}
{{- define "winnow.check" -}}
{{- if and .Values.parent (ne (int .Values.replicas) 1) -}}
{{- fail (printf "parent is set and replicas is %d: a worker lists one site, so set replicas to 1" (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.parent (or .Values.xdp.enabled .Values.dpdk.enabled) -}}
{{- fail "parent is set and xdp.enabled or dpdk.enabled is true: a site has the data path udp" -}}
{{- end -}}
{{- if and .Values.site (not .Values.parent) -}}
{{- fail "site is set and parent is not: whose site is it?" -}}
{{- end -}}
{{- if and .Values.xdp.enabled .Values.dpdk.enabled -}}
{{- fail "xdp.enabled and dpdk.enabled are both true: an aggregator has one data path" -}}
{{- end -}}
{{- if and .Values.dpdk.enabled (not .Values.dpdk.device) (not .Values.dpdk.eal) -}}
{{- fail "dpdk.enabled needs dpdk.device, or dpdk.eal with DPDK's arguments" -}}
{{- end -}}
{{- if and .Values.hostNetwork .Values.multus.network -}}
{{- fail "hostNetwork is true and multus.network is set: a pod in its host's network has no networks of its own" -}}
{{- end -}}
{{- if and .Values.hugepages (not .Values.dpdk.enabled) -}}
{{- fail "hugepages is set and dpdk.enabled is false: only DPDK uses huge pages" -}}
{{- end -}}
{{- end }}

{{/* Of the Secret that the keys are in, if it can be seen: pods are replaced when a key changes. */}}
{{- define "winnow.keysChecksum" -}}
{{- if .Values.key -}}
{{- .Values.key | sha256sum -}}
{{- else -}}
{{- with lookup "v1" "Secret" .Release.Namespace .Values.secret -}}
{{- .data | toJson | sha256sum -}}
{{- end -}}
{{- end -}}
{{- end }}
