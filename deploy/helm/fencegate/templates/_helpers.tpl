{{- define "fencegate.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* What selects the gateways of this release. Never changes: a selector cannot. */}}
{{- define "fencegate.selector" -}}
fencegate: {{ include "fencegate.name" . }}
{{- end }}

{{- define "fencegate.labels" -}}
app.kubernetes.io/name: fencegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fencegate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What `restricted` wants, for the pod and for the container. */}}
{{- define "fencegate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "fencegate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What has to agree with the rest of the pod. Variables win over the file. */}}
{{- define "fencegate.env" -}}
{{- $host := ternary (printf "[%s]" .Values.listen.address) .Values.listen.address (contains ":" .Values.listen.address) -}}
- name: FENCEGATE_CONFIG
  value: /etc/fencegate/fencegate.toml
- name: FENCEGATE_LOG
  value: {{ .Values.log | quote }}
- name: FENCEGATE_LISTEN__PROXY
  value: {{ printf "%s:%d" $host (int .Values.listen.proxy) | quote }}
- name: FENCEGATE_LISTEN__LEASES
  value: {{ printf "%s:%d" $host (int .Values.listen.leases) | quote }}
- name: FENCEGATE_LISTEN__ADMIN
  value: {{ printf "%s:%d" $host (int .Values.listen.admin) | quote }}
- name: FENCEGATE_LISTEN__WORKERS
  value: {{ .Values.workers | quote }}
- name: FENCEGATE_ACCESS__CREDENTIALS
  value: /run/fencegate/access/credentials.toml
- name: FENCEGATE_ACCESS__METRICS
  value: {{ .Values.access.metrics }}
- name: FENCEGATE_SHUTDOWN__UNREADY
  value: {{ printf "%ds" (int .Values.shutdown.unready) | quote }}
- name: FENCEGATE_SHUTDOWN__GRACE
  value: {{ printf "%ds" (int .Values.shutdown.grace) | quote }}
{{- if .Values.migration.enabled }}
- name: FENCEGATE_STORE__MIGRATE
  value: by_command
{{- end }}
{{- end }}

{{- define "fencegate.mounts" -}}
- name: config
  mountPath: /etc/fencegate
  readOnly: true
- name: access
  mountPath: /run/fencegate/access
  readOnly: true
{{- range $name, $_ := .Values.secrets }}
- name: secret-{{ $name }}
  mountPath: /run/fencegate/{{ $name }}
  readOnly: true
{{- end }}
{{- range $name, $_ := .Values.configMaps }}
- name: config-{{ $name }}
  mountPath: /run/fencegate/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}

{{/* Takes a list: the root, and the name of the ConfigMap with fencegate.toml. */}}
{{- define "fencegate.volumes" -}}
{{- $root := index . 0 -}}
- name: config
  configMap:
    name: {{ index . 1 }}
- name: access
  secret:
    secretName: {{ required "access.secret is empty: it is the Secret with credentials.toml, which says who may do what on the lease and admin listeners; docs/installing.md shows how to make it" $root.Values.access.secret }}
    defaultMode: 0440
{{- range $name, $secret := $root.Values.secrets }}
- name: secret-{{ $name }}
  secret:
    secretName: {{ $secret }}
    defaultMode: 0440
{{- end }}
{{- range $name, $map := $root.Values.configMaps }}
- name: config-{{ $name }}
  configMap:
    name: {{ $map }}
{{- end }}
{{- end }}

{{- define "fencegate.config" -}}
{{- $config := required "config is empty: it is the fencegate.toml, with at least [store], one [[upstream]] and one [[route]]" .Values.config -}}
{{- if not (regexMatch "postgres(ql)?://|url_file" $config) -}}
{{- fail "config: several gateways share one store, so store.url has to be postgres://… (or come from store.url_file); for SQLite see the sidecar in docs/installing.md" -}}
{{- end -}}
fencegate.toml: |
  {{- $config | trim | nindent 2 }}
{{- end }}
