//! The Helm chart installs what `deploy/operator.yaml` does.
//!
//! Helm is not needed: the chart uses few of its words, and a template with others fails here.

use std::fs;
use std::path::Path;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(FOLDER).join(file)).expect(file)
}

/// The template with the values of `values.yaml`, in this namespace.
fn rendered(namespace: &str) -> String {
    let values = read("chart/values.yaml");
    let value = |name: &str| {
        let line = values.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).expect(name);
        line.trim_matches('"').to_owned()
    };
    assert_eq!((value("arguments"), value("ledgerClaim")), ("[]".into(), String::new()));
    let resources: Vec<&str> = values.split("resources:\n").nth(1).expect("resources").lines().collect();
    let template = read("chart/templates/operator.yaml");
    let mut lines = Vec::new();
    // Whether lines are left out, for nothing is listed, or what is asked for is not given.
    let mut is_out = false;
    for line in template.lines().filter(|line| !line.starts_with('#')) {
        match line.trim() {
            "{{- range .Values.arguments }}" | "{{- if .Values.ledgerClaim }}" => is_out = true,
            "{{- else }}" | "{{- end }}" => is_out = false,
            "{{- toYaml .Values.resources | nindent 12 }}" => {
                lines.extend(resources.iter().map(|line| format!("          {line}")));
            }
            _ if is_out => {}
            _ => lines.push(
                line.replace("{{ .Release.Namespace }}", namespace)
                    .replace("{{ .Values.image }}", &value("image"))
                    .replace("{{ .Values.replicas }}", &value("replicas")),
            ),
        }
    }
    lines.join("\n")
}

#[test]
fn the_chart_is_the_manifest() {
    let manifest = read("operator.yaml");
    // Helm makes the namespace.
    let (_, manifest) = manifest.split_once("\n---\n").expect("several objects");
    let plain = |text: &str| {
        text.lines().filter(|line| !line.trim_start().starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(plain(&rendered("bellwether-system")), plain(manifest));
    assert!(!rendered("other").contains("bellwether-system"), "all objects are in the release's namespace");
    assert_eq!(read("chart/crds/crds.yaml"), read("crds.yaml"));
}
