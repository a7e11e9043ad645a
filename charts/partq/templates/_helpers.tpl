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

{{- /* Bytes of a size such as 512mb, 1.5Gi or 3gb: Redis and Kubernetes count both by 1,024. */ -}}
{{- define "partq.bytes" -}}
{{- $unit := regexFind "[a-zA-Z]+$" . | lower | trimSuffix "b" | trimSuffix "i" }}
{{- $factors := dict "k" 1024 "m" 1048576 "g" 1073741824 "t" 1099511627776 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $factors $unit) | printf "%.0f" }}
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

{{/* The built-in Redis's password: as given, else the release's own, else a new one; one per rendering. */}}
{{- define "partq.redisPassword" -}}
{{- if not (hasKey .Release "redisPassword") }}
{{- $password := .Values.redis.builtIn.password }}
{{- if not $password }}
{{- $known := (lookup "v1" "Secret" .Release.Namespace (include "partq.redisSecret" .)).data | default dict }}
{{- $password = get $known "password" | b64dec | default (randAlphaNum 32) }}
{{- end }}
{{- $_ := set .Release "redisPassword" $password }}
{{- end }}
{{- .Release.redisPassword }}
{{- end }}

{{/* What marks the brokers of this release, as names.operator_label of the operator makes it. */}}
{{- define "partq.operatorLabel" -}}
{{- printf "%s.%s" .Release.Namespace (include "partq.leaseName" .) | trunc 63 | trimAll "-." }}
{{- end }}

{{- define "partq.leaseName" -}}
{{- .Values.operator.leaseName | default (printf "%s-operator" (include "partq.fullname" .)) }}
{{- end }}

{{/* A selector of the namespaces where brokers may be; the API server sets this label, nobody else. */}}
{{- define "partq.brokerNamespaces" -}}
{{- if and .Values.operator.namespaces (semverCompare ">=1.22.0-0" .Capabilities.KubeVersion.Version) -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: In
    values: {{- toYaml .Values.operator.namespaces | nindent 6 }}
{{- else -}}
{}
{{- end }}
{{- end }}

{{/* The ports of Redis that the operator reaches: those of the values, and those that redis.url names. */}}
{{- define "partq.redisPorts" -}}
{{- $ports := .Values.networkPolicy.redisPorts }}
{{- range regexFindAll ":[0-9]+([,/?]|$)" .Values.redis.url -1 }}
{{- $ports = append $ports (. | trimAll ":,/?" | int) }}
{{- end }}
{{- range $ports | uniq }}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end }}

{{- define "partq.redisUrl" -}}
{{- if .Values.redis.url }}
{{- .Values.redis.url }}
{{- else if include "partq.hasOwnRedis" . }}
{{- printf "redis://:%s@%s-redis.%s.svc:6379/0" (include "partq.redisPassword" .) (include "partq.fullname" .) .Release.Namespace }}
{{- else }}
{{- fail "redis: give redis.url or redis.existingSecret, or leave redis.builtIn.enabled true" }}
{{- end }}
{{- end }}

{{/* Differs for each URL. Users who read pods see it: scrypt, as the URL may hold a password. */}}
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
