//! A trouble, how it is produced, and what `coracle why` must say about it.

/// One case. It has a namespace of its own, `w-NAME`. In manifests and commands, `$NS` stands for it, and `$REGISTRY` for the
/// registry of the suite.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    /// The name of the trouble.
    pub trouble: &'static str,
    /// Arguments of `coracle why`.
    pub ask: String,
    /// The object at fault as KIND/NAME, or the beginning of that.
    pub object: String,
    /// A part of the cause; without one, no answer is right.
    pub cause: &'static str,
    /// A part of `WHAT: TEXT` of an evidence.
    pub evidence: &'static str,
    /// A part of the remedy.
    pub remedy: &'static str,
    /// Other troubles that the answer may have.
    pub also: Vec<&'static str>,
    /// Applied in the namespace, unless they name another one.
    pub manifests: Vec<String>,
    /// Command lines of kubectl that follow; those after `? ` may fail, those after `! ` are repeated until they fail.
    pub commands: Vec<String>,
    /// Command lines of kubectl after which nothing is wrong.
    pub mend: Vec<String>,
    /// Whether it lasts, and `coracle why` without an object shows it.
    pub surveyed: bool,
    /// Whether the API says when it began: the answer must have it, and nothing older than the suite.
    pub dated: bool,
    /// Labels of the namespace.
    pub labels: &'static str,
}

impl Case {
    /// A trouble that is asked about as `ask`, such as `service/s`.
    pub fn new(trouble: &'static str, ask: &str, object: &str, manifest: &str) -> Self {
        Self {
            name: trouble.to_owned(),
            trouble,
            ask: ask.to_owned(),
            object: object.to_owned(),
            cause: "",
            evidence: "",
            remedy: "",
            also: Vec::new(),
            manifests: if manifest.is_empty() { Vec::new() } else { vec![manifest.to_owned()] },
            commands: Vec::new(),
            mend: Vec::new(),
            surveyed: true,
            dated: true,
            labels: "",
        }
    }

    /// A trouble of the pod `p`, from the fields of its spec.
    pub fn pod(trouble: &'static str, spec: &str) -> Self {
        Self::new(trouble, "pod/p", "Pod/p", &pod("p", spec))
    }

    /// A trouble of a Deployment `d` that cannot create its pods; `replicas` and more of its spec, and the spec of its pods.
    pub fn deployment(trouble: &'static str, more: &str, spec: &str) -> Self {
        Self::new(trouble, "deployment/d", "ReplicaSet/d-", &deployment(more, spec))
    }

    /// Another name than that of the trouble, for a second case of it.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// The object at fault.
    pub fn of(mut self, object: &str) -> Self {
        self.object = object.to_owned();
        self
    }

    /// Another question.
    pub fn asked(mut self, ask: &str) -> Self {
        self.ask = ask.to_owned();
        self
    }

    /// What the cause must contain.
    pub fn because(mut self, cause: &'static str) -> Self {
        self.cause = cause;
        self
    }

    /// Nothing in the API says since when it is so.
    pub fn undated(mut self) -> Self {
        self.dated = false;
        self
    }

    /// What an evidence and the remedy must contain.
    pub fn says(mut self, evidence: &'static str, remedy: &'static str) -> Self {
        self.evidence = evidence;
        self.remedy = remedy;
        self
    }

    /// Other troubles that may be named.
    pub fn also(mut self, troubles: &[&'static str]) -> Self {
        self.also.extend(troubles);
        self
    }

    /// One more manifest, applied before the others.
    pub fn with(mut self, manifest: &str) -> Self {
        self.manifests.insert(0, manifest.to_owned());
        self
    }

    /// A command line of kubectl.
    pub fn then(mut self, command: &str) -> Self {
        self.commands.push(command.to_owned());
        self
    }

    /// A command line of kubectl that helps.
    pub fn mended_by(mut self, command: &str) -> Self {
        self.mend.push(command.to_owned());
        self
    }

    /// Not shown for the whole cluster, or only for a while.
    pub fn alone(mut self) -> Self {
        self.surveyed = false;
        self
    }

    /// Labels of the namespace.
    pub fn labelled(mut self, labels: &'static str) -> Self {
        self.labels = labels;
        self
    }

    /// Its namespace.
    pub fn namespace(&self) -> String {
        format!("w-{}", self.name)
    }
}

/// A pod in YAML, from the fields of its spec.
pub fn pod(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, \
         spec: {{terminationGracePeriodSeconds: 1, {spec}}}}}"
    )
}

/// A container `c` of busybox, from more of its fields.
pub fn busybox(fields: &str) -> String {
    format!("containers: [{{name: c, image: busybox, {fields}}}]")
}

/// A container `c` that runs a line in a shell.
pub fn shell(line: &str) -> String {
    busybox(&format!("command: [sh, -c, '{line}']"))
}

/// A container `c` that does nothing.
pub fn idle() -> String {
    busybox("command: [sleep, '100000']")
}

/// A Deployment `d` in YAML, from more of its spec and the fields of its pods' spec.
pub fn deployment(more: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d}}, spec: {{{more}, selector: {{matchLabels: {{app: d}}}}, \
         template: {{metadata: {{labels: {{app: d}}}}, spec: {{terminationGracePeriodSeconds: 1, {spec}}}}}}}}}"
    )
}

/// An object in YAML: kind with version, name, and more of its fields.
pub fn object(version: &str, kind: &str, name: &str, fields: &str) -> String {
    format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}}}, {fields}}}")
}
