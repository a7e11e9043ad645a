{{- define "partq.name" -}}
{{- printf "%s" .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "partq.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "partq.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: partq
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "partq.selector" . }}
{{- end }}

{{- define "partq.selector" -}}
app.kubernetes.io/name: partq-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "partq.redisSelector" -}}
app.kubernetes.io/name: partq-redis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "partq.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (printf "%s-operator" (include "partq.fullname" .)) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "partq.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "partq.hasOwnRedis" -}}
{{- if and .Values.redis.builtIn.enabled (not .Values.redis.url) (not .Values.redis.existingSecret) }}yes{{ end }}
{{- end }}

{{- define "partq.redisStorage" -}}
{{- if and (include "partq.hasOwnRedis" .) (not .Values.redis.builtIn.persistence.enabled) }}ephemeral{{ else }}persistent{{ end }}
{{- end }}

{{- define "partq.redisSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis-url" (include "partq.fullname" .)) }}
{{- end }}

{{- define "partq.redisUrl" -}}
{{- if .Values.redis.url }}
{{- .Values.redis.url }}
{{- else if include "partq.hasOwnRedis" . }}
{{- printf "redis://%s-redis.%s.svc:6379/0" (include "partq.fullname" .) .Release.Namespace }}
{{- else }}
{{- fail "redis: give redis.url or redis.existingSecret, or leave redis.builtIn.enabled true" }}
{{- end }}
{{- end }}

{{/* Another one for another URL, in sight of whoever reads pods: scrypt, as the URL may hold a password. */}}
{{- define "partq.redisUrlHash" -}}
{{- derivePassword 1 "long" (include "partq.redisUrl" .) .Release.Namespace (include "partq.fullname" .) | sha256sum | trunc 16 }}
{{- end }}

{{- define "partq.brokerNetworkPolicy" -}}
{{- if not .Values.networkPolicy.enabled }}none{{ else if .Values.networkPolicy.brokerEgress }}full{{ else }}ingress{{ end }}
{{- end }}

{{- define "partq.podSecurity" -}}
runAsNonRoot: true
{{- if eq .Values.podSecurity.user "fixed" }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "partq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Take the rules out of a schema that servers before 1.25 (CEL) and 1.30 (selectable fields) refuse. */}}
{{- define "partq.withoutRules" -}}
{{- $_ := unset .node "x-kubernetes-validations" }}
{{- range $key, $value := .node }}
{{- if kindIs "map" $value }}
{{- $_ := include "partq.withoutRules" (dict "node" $value) }}
{{- end }}
{{- end }}
{{- end }}
