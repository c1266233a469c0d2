//! The command: connect, look, print.

use crate::args::WhyArgs;
use crate::cluster::{Answer, Cluster, Need};
use crate::connect::Connection;
use crate::explain::inspect;
use crate::kinds::Resource;
use crate::kube_cluster::KubeCluster;
use crate::network::connection::{self, Target};
use crate::network::permitted;
use crate::report::Report;
use crate::survey::survey;
use crate::target::{self, Problem};
use crate::well;
use crate::world::World;
use coracle_cli::causes;
use coracle_fields::core::v1::Pod;
use jiff::Timestamp;

/// Exit code of wrong usage, and of kinds and objects that do not exist.
const USAGE: u8 = 2;
/// Exit code when the cluster or the object cannot be read.
const BLIND: u8 = 3;

/// Runs the command. The exit code is 0 when nothing wrong was found, 1 when there is a finding, 2 for wrong usage and for what does
/// not exist, and 3 when it could not look.
pub async fn run(args: &WhyArgs) -> u8 {
    let connection = match args.connect.connect().await {
        Ok(connection) => connection,
        // Nothing was sent yet: the flags or the kubeconfig have to change.
        Err(error) => return failed(USAGE, &causes::chain(&error)),
    };
    let cluster = KubeCluster::new(connection.client.clone(), connection.timeout);
    match cluster.answer(&Need::Clock).await {
        Answer::Failed(why) => return failed(BLIND, &unreachable(&connection, &why)),
        Answer::Refused(why) => return failed(BLIND, &unknown_user(&connection, &why)),
        _ => {}
    }
    let result = look(args, &cluster, &connection.namespace).await;
    match result {
        Ok(report) => {
            let everything = args.objects.is_empty() && args.from.is_none();
            let text = || if everything { report.table() } else { report.text() };
            match args.output.print(&report, text) {
                Ok(()) => report.exit_code(),
                Err(error) => failed(BLIND, &error.to_string()),
            }
        }
        Err(problem) => failed(exit_code(&problem), &problem.to_string()),
    }
}

/// As that of `coracle trace`: whether the user has to ask for something else, or could not look.
fn exit_code(problem: &Problem) -> u8 {
    match problem {
        Problem::Usage(_)
        | Problem::UnknownKind { .. }
        | Problem::Missing { .. }
        | Problem::NamespaceMissing { .. } => USAGE,
        Problem::Unreadable { .. } => BLIND,
    }
}

fn failed(code: u8, message: &str) -> u8 {
    eprintln!("why: {message}");
    code
}

/// Why the server cannot be asked, with what the words of the error mean.
fn unreachable(connection: &Connection, why: &str) -> String {
    let lower = why.to_lowercase();
    let hint = if lower.contains("expired") {
        ": the certificate of the server or of this user has ended, or the clock of this machine is wrong"
    } else if lower.contains("notvalidyet") || lower.contains("not valid yet") {
        ": a certificate is not valid yet, or the clock of this machine is behind"
    } else if lower.contains("unknownissuer") || lower.contains("unknown issuer") {
        ": the kubeconfig trusts another authority than the one that signed the server's certificate"
    } else if lower.contains("connection refused") {
        ": nothing listens there, so the API server does not run"
    } else {
        ""
    };
    format!("cannot reach the API server at {}: {why}{hint}", connection.server)
}

/// That the server does not know the user.
fn unknown_user(connection: &Connection, why: &str) -> String {
    format!(
        "the API server at {} does not accept the credentials of the kubeconfig: {why}",
        connection.server
    )
}

/// Looks at what was asked for.
async fn look<C: Cluster>(args: &WhyArgs, cluster: &C, context: &str) -> Result<Report, Problem> {
    let namespace = args.namespace.as_deref().unwrap_or(context);
    if let (Some(from), Some(to)) = (&args.from, &args.to) {
        let wanted = target::connection(namespace, from, to, &args.protocol)?;
        return between(cluster, &wanted).await;
    }
    if args.objects.is_empty() {
        let scope = args.namespace.as_deref().filter(|_| !args.all_namespaces);
        if let Some(namespace) = scope {
            exists(cluster, namespace).await?;
        }
        return Ok(everything(cluster, scope, context).await);
    }
    objects(cluster, namespace, &target::parse(&args.objects)?).await
}

/// Refuses a namespace that does not exist: nothing is in it, and so nothing would be wrong. Those who may not read namespaces may be
/// able to read what is in this one.
async fn exists<C: Cluster>(cluster: &C, namespace: &str) -> Result<(), Problem> {
    let mut world = World::new(Timestamp::now(), false, inspect);
    let find = |world: &World| target::find(world, "", "namespace", namespace);
    match world.explore(cluster, find).await {
        Err(problem @ Problem::Missing { .. }) => Err(problem),
        _ => Ok(()),
    }
}

/// Objects by kind and name.
pub(crate) async fn objects<C: Cluster>(
    cluster: &C,
    namespace: &str,
    pairs: &[(String, String)],
) -> Result<Report, Problem> {
    let mut world = World::new(Timestamp::now(), false, inspect);
    let (mut objects, mut findings) = (Vec::new(), Vec::new());
    let (mut well, mut unclear) = (Vec::new(), Vec::new());
    for (kind, name) in pairs {
        let explained = world.explore(cluster, |world| {
            let (object, found) = target::explain(world, namespace, kind, name)?;
            let sentence = if found.is_empty() { well::describe(world, &object) } else { None };
            Ok((object, found, sentence))
        });
        let (object, found, sentence) = explained.await?;
        match sentence {
            Some(sentence) => well.push(sentence),
            None if found.is_empty() => unclear.push(object.clone()),
            None => {}
        }
        objects.push(object);
        findings.extend(found);
    }
    Ok(Report::new(&world, objects, findings).without_findings(well, unclear))
}

/// The whole cluster, or what the user may read of it.
pub(crate) async fn everything<C: Cluster>(cluster: &C, scope: Option<&str>, context: &str) -> Report {
    let mut world = World::new(Timestamp::now(), scope.is_none(), inspect);
    let findings = world.explore(cluster, |world| survey(world, scope)).await;
    let pods = Need::List { resource: Resource::of::<Pod>(), namespace: None };
    let refused = world.answers().any(|(need, answer)| *need == pods && matches!(answer, Answer::Refused(_)));
    if scope.is_some() || !refused {
        return Report::new(&world, Vec::new(), findings);
    }
    let mut world = World::new(Timestamp::now(), false, inspect);
    let findings = world.explore(cluster, |world| survey(world, Some(context))).await;
    let mut report = Report::new(&world, Vec::new(), findings);
    report.not_looked_at.push(format!(
        "other namespaces than {context}: may not list pods in all namespaces; -n NAMESPACE looks there"
    ));
    report
}

/// A connection between two ends.
pub(crate) async fn between<C: Cluster>(
    cluster: &C,
    wanted: &connection::Connection,
) -> Result<Report, Problem> {
    let mut world = World::new(Timestamp::now(), false, inspect);
    let (objects, findings, open) = world
        .explore(cluster, |world| -> Result<_, Problem> {
            let mut wanted = wanted.clone();
            let from = target::find_pod(world, &wanted.from.0, &wanted.from.1)?;
            wanted.from = (from.namespace.clone(), from.name.clone());
            let mut objects = vec![from];
            if let Target::Address(address) = wanted.to
                && let Some(owner) = connection::owner(world, address)
            {
                wanted.to = owner;
            }
            match &wanted.to {
                Target::Service(namespace, name) => {
                    objects.push(target::find(world, namespace, "service", name)?)
                }
                Target::Pod(namespace, name) => {
                    let to = target::find_pod(world, namespace, name)?;
                    wanted.to = Target::Pod(to.namespace.clone(), to.name.clone());
                    objects.push(to);
                }
                Target::Name(_) | Target::Address(_) => {}
            }
            let findings = connection::explain(world, &wanted);
            let open = if findings.is_empty() { permitted::describe(world, &wanted) } else { None };
            Ok((objects, findings, open))
        })
        .await?;
    let unclear = if findings.is_empty() && open.is_none() { objects.clone() } else { Vec::new() };
    Ok(Report::new(&world, objects, findings).without_findings(open.into_iter().collect(), unclear))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::ObjectRef;

    #[test]
    fn exit_codes_of_problems() {
        let object = || Box::new(ObjectRef::new::<Pod>("a", "b"));
        assert_eq!(exit_code(&Problem::Usage("x".to_owned())), 2);
        assert_eq!(exit_code(&Problem::UnknownKind { kind: "pdo".to_owned(), similar: None }), 2);
        assert_eq!(exit_code(&Problem::Missing { object: object(), similar: None, past: None }), 2);
        assert_eq!(exit_code(&Problem::Unreadable { object: object(), why: "no".to_owned() }), 3);
    }
}
