{{- define "hbroker.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "hbroker.labels" -}}
app.kubernetes.io/name: hbroker
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "hbroker.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "hbroker.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "hbroker.address" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}

{{- define "hbroker.state" -}}
- metadata: {name: state}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .Values.storage.className }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .Values.storage.size }}}}
{{- end }}
