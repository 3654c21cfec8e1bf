//! Machines of a plan that are pods, on nodes that an autoscaler adds: obtained, lost, replaced, and given back
//! whatever is killed. The API server, the scheduler and the controllers are real; nodes and the autoscaler are played.

#![allow(clippy::print_stdout, reason = "a long test says what it measured")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::record::{Event, Summary};
use bellwether_runtime::journal;
use bellwether_testkit::Random;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::on_server;
use crate::support::autoscaler::{Autoscaler, NodePool};
use crate::support::kubelet::{BARE_REGISTRY, Kubelet};
use crate::support::operator::{bellwether, namespace, output};
use crate::support::{self, wait_for};

const LEASE: &str = "train.bellwether.dev/lease";

/// Labels of the nodes, the second also the taint of those that may be taken away.
const POOL: &str = "test.bellwether.dev/pool";
const SPOT: &str = "test.bellwether.dev/spot";

/// What pods on spot nodes ask for, so that a quota can be used up.
const SPOT_DEVICE: &str = "test.bellwether.dev/device";

/// Kills of the long test.
const KILLS: usize = 60;

/// A user's folder, and a cluster with two pools of nodes.
struct Scene {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
    client: Client,
    namespace: String,
    autoscaler: Autoscaler,
    kubelet: Arc<Kubelet>,
}

/// A command that runs; it is killed when this is dropped.
struct Live(Child, PathBuf);

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Steps that sleep, so that a run lasts as long as a test needs it to.
fn job(steps: u64, step_time: &str) -> String {
    format!(
        "name = \"job\"\nseed = 3\nsteps = {steps}\nworkers = \"1..4\"\n\
         [model]\nkind = \"synthetic\"\nstep_time = \"{step_time}\"\nspread = 0.0\nparameters = \"64KiB\"\n\
         [data]\nkind = \"indices\"\nsamples = 4000\n[batch]\nsize = 16\nvirtual_nodes = 4\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n[checkpoint]\nevery_steps = 100\n"
    )
}

/// A kubeconfig with another namespace, and if need be for another user.
fn kubeconfig_of(kubeconfig: &Path, namespace: &str, user: Option<&str>, file: &Path) {
    let mut config = Kubeconfig::read_from(kubeconfig).unwrap();
    for context in config.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
        context.namespace = Some(namespace.to_owned());
    }
    for named in config.auth_infos.iter_mut().filter(|_| user.is_some()) {
        named.auth_info.get_or_insert_default().impersonate = user.map(str::to_owned);
    }
    std::fs::write(file, serde_saphyr::to_string(&config).unwrap()).unwrap();
}

impl Scene {
    async fn new(kubeconfig: &Path, space: &str, steps: u64) -> Scene {
        let client = support::client(&kubeconfig.to_owned()).await;
        namespace(&client, space).await;
        let folder = tempfile::tempdir().unwrap();
        let programs = [("/usr/bin/bellwether", bellwether())];
        let kubelet = Arc::new(Kubelet::start(client.clone(), &folder.path().join("nodes"), &programs));
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let spot = NodePool {
            name: "spot",
            labels: [label(POOL, &format!("{space}-a")), label(SPOT, "true")].into(),
            taint: Some(SPOT),
            resource: Some(SPOT_DEVICE),
            price: 25,
            quota: 3,
            delay: Duration::from_secs(2),
        };
        let steady = NodePool {
            name: "steady",
            labels: [label(POOL, &format!("{space}-b"))].into(),
            taint: None,
            resource: None,
            price: 20,
            quota: 4,
            ..spot.clone()
        };
        let autoscaler = Autoscaler::start(client.clone(), Arc::clone(&kubelet), vec![spot, steady]);
        let file = folder.path().join("kubeconfig");
        kubeconfig_of(kubeconfig, space, None, &file);
        let scene =
            Scene { folder, kubeconfig: file, client, namespace: space.to_owned(), autoscaler, kubelet };
        std::fs::write(scene.path("job.toml"), job(steps, "8ms")).unwrap();
        scene.plan(steps, "trainer:1").await;
        scene
    }

    /// Plans for two spot machines and one on demand, whose pods have this image.
    async fn plan(&self, steps: u64, image: &str) {
        self.succeeds(&["profile", "job.toml", "-o", "profile.json"]).await;
        let profile: Value = self.read("profile.json");
        let device = profile["device"].as_str().unwrap();
        let space = &self.namespace;
        let catalogue = format!(
            "[network]\nbandwidth = \"10Gbit/s\"\n\
             [[machine]]\nname = \"box\"\ndevice = \"{device}\"\nprice = \"$1/h\"\ntransient_price = \"$0.25/h\"\n\
             revocations = \"exponential:1h\"\nprovision = \"2s\"\n[machine.obtain]\nimage = \"{image}\"\n\
             kubernetes = {{ \"{POOL}\" = \"{space}-a\" }}\nkubernetes_transient = {{ \"{SPOT}\" = \"true\" }}\n\
             kubernetes_resources = {{ \"{SPOT_DEVICE}\" = \"1\" }}\n\
             [[machine]]\nname = \"tower\"\ndevice = \"{device}\"\nprice = \"$0.20/h\"\nprovision = \"2s\"\n\
             [machine.obtain]\nimage = \"{image}\"\nkubernetes = {{ \"{POOL}\" = \"{space}-b\" }}\n"
        );
        std::fs::write(self.path("prices.toml"), catalogue).unwrap();
        let steps = steps.to_string();
        let words = ["plan", "profile.json", "--catalog", "prices.toml", "--format", "json", "--transient"];
        let more = ["--max-workers", "3", "--steps", &steps, "--deadline", "20h"];
        let made = self.succeeds(&[&words[..], &more].concat()).await;
        // The cheapest plan would be one machine.
        let mut plan: Value = serde_json::from_slice(&made.stdout).unwrap();
        let choice = plan["choice"].as_u64().unwrap() as usize;
        let chosen = &mut plan["candidates"][choice];
        let group = |machine: &str, market: &str, count: u32, price: f64| {
            let mut group = chosen["machines"][0].clone();
            (group["machine"], group["market"], group["count"]) =
                (machine.into(), market.into(), count.into());
            group["dollars_per_hour"] = price.into();
            group
        };
        let groups = [group("box", "transient", 2, 0.25), group("tower", "on_demand", 1, 0.2)];
        (chosen["machines"], chosen["workers"]) = (json!(groups), 3.into());
        std::fs::write(self.path("plan.json"), plan.to_string()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(bellwether());
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.folder.path());
        command.env("XDG_STATE_HOME", self.path("state")).env("XDG_CACHE_HOME", self.path("cache"));
        command.env_remove("BELLWETHER_STATE_DIR").env_remove("COLUMNS");
        command
    }

    async fn call(&self, arguments: &[&str]) -> Output {
        output(self.command(arguments)).await
    }

    async fn succeeds(&self, arguments: &[&str]) -> Output {
        let output = self.call(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn start(&self, arguments: &[&str]) -> Live {
        let (out, log) = (self.path("out"), self.path("log"));
        let mut command = self.command(arguments);
        let told = File::options().create(true).append(true).open(&log).unwrap();
        command.stdout(File::create(&out).unwrap()).stderr(told);
        Live(command.spawn().unwrap(), out)
    }

    /// Starts the planned run, or goes on with it.
    fn train(&self) -> Live {
        let listen = ["--listen", "127.0.0.1:0"];
        let is_begun = self.path("state/bellwether/job-1/endpoint.json").exists();
        if is_begun {
            return self.start(&["run", "--resume", "job-1", "--format", "json"]);
        }
        let _ = std::fs::remove_dir_all(self.path("state/bellwether/job-1"));
        let words =
            ["run", "job.toml", "--format", "json", "--plan", "plan.json", "--provision", "kubernetes"];
        self.start(&[&words[..], &listen].concat())
    }

    fn events(&self) -> Vec<Event> {
        let journal = self.path("state/bellwether/job-1/journal.jsonl");
        journal::read(&journal).unwrap_or_default().into_iter().map(|line| line.event).collect()
    }

    fn notes(&self) -> Vec<String> {
        let events = self.events().into_iter();
        let note = |event| if let Event::Cluster { message } = event { Some(message) } else { None };
        events.filter_map(note).collect()
    }

    /// What the user has seen, for a test that fails.
    fn story(&self) -> String {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        format!("{}\n{log}", self.notes().join("\n"))
    }

    /// Waits until a membership of this many workers begins at `after` or later; its step.
    async fn trains_with(&self, workers: usize, after: u64) -> u64 {
        wait_for(&format!("{workers} workers from step {after} on"), 150, async || {
            self.events().iter().rev().find_map(|event| match event {
                Event::Membership { workers: members, step, .. }
                    if members.len() == workers && *step >= after =>
                {
                    Some(*step)
                }
                _ => None,
            })
        })
        .await
    }

    /// Waits for the end of a run.
    async fn summary(&self, mut live: Live) -> Summary {
        wait_for("the end of the run", 300, async || live.0.try_wait().unwrap()).await;
        let text = std::fs::read_to_string(&live.1).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{}", self.story()))
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        pods.list(&ListParams::default().labels(LEASE)).await.unwrap().items
    }

    /// Pods and Secrets of leases.
    async fn left(&self) -> (usize, usize) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secrets = secrets.list(&ListParams::default().labels(LEASE)).await.unwrap().items;
        (self.pods().await.len(), secrets.len())
    }

    /// A run that nothing disturbed, on this machine. It does not sleep: what is computed is the same.
    async fn undisturbed(&self, steps: u64) -> Option<String> {
        std::fs::write(self.path("alone.toml"), job(steps, "1us")).unwrap();
        let words = ["run", "alone.toml", "--workers", "2", "--format", "json", "--state-dir", "alone"];
        let alone = self.succeeds(&words).await;
        serde_json::from_slice::<Summary>(&alone.stdout).unwrap().params_digest
    }

    async fn has_ended_well(&self, summary: &Summary, steps: u64) {
        let story = self.story();
        assert_eq!((summary.outcome.word(), summary.steps), ("finished", steps), "{story}");
        assert_eq!(summary.params_digest, self.undisturbed(steps).await, "the same bits: {story}");
        assert_eq!(summary.provisioned.as_ref().map(|account| account.left), Some(0), "{story}");
        assert_eq!(self.left().await, (0, 0), "{story}");
        self.succeeds(&["audit", "job-1"]).await;
        self.autoscaler.end().await;
    }

    /// The pod of a machine of a pool, and its node.
    async fn pod_on(&self, pool: &str) -> (String, String) {
        let nodes = self.autoscaler.nodes(pool);
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let pods = self.pods().await;
        let found = pods.iter().find_map(|pod| {
            let node = node(pod).filter(|node| nodes.contains(node))?;
            pod.metadata.deletion_timestamp.is_none().then(|| (pod.name_any(), node))
        });
        found.unwrap_or_else(|| panic!("no pod on {nodes:?}"))
    }

    /// The namespace may have this many spot devices from now on.
    async fn set_quota(&self, devices: u32) {
        let quotas: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &self.namespace);
        let resource = format!("requests.{SPOT_DEVICE}");
        let quota =
            json!({"metadata": {"name": "spot"}, "spec": {"hard": {resource.clone(): devices.to_string()}}});
        let made =
            quotas.create(&PostParams::default(), &serde_json::from_value(quota.clone()).unwrap()).await;
        if made.is_err() {
            quotas.patch("spot", &PatchParams::default(), &Patch::Merge(&quota)).await.unwrap();
        }
        wait_for("the quota", 20, async || {
            let hard = quotas.get("spot").await.ok()?.status?.hard?;
            (hard.get(&resource)?.0 == devices.to_string()).then_some(())
        })
        .await;
    }
}

/// Steps of the tests that end.
const STEPS: u64 = 1500;

#[test]
fn two_machines_are_lost_and_replaced_and_all_are_given_back() {
    on_server(async |kubeconfig| {
        let scene = Scene::new(&kubeconfig, "provision-road", STEPS).await;
        scene.set_quota(2).await;
        let run = scene.train();
        let step = scene.trains_with(3, 0).await;
        let token = std::fs::read_to_string(scene.path("state/bellwether/job-1/token")).unwrap();
        let pods = serde_json::to_string(&scene.pods().await).unwrap();
        assert!(!pods.contains(token.trim()), "a pod shows the token: {pods}");
        // A spot node is taken away, and there is no other: a machine of the other pool stands in.
        scene.set_quota(0).await;
        let (_, node) = scene.pod_on("spot").await;
        scene.autoscaler.revoke(&node, Duration::from_secs(2)).await;
        let fewer = scene.trains_with(2, step + 1).await;
        let again = scene.trains_with(3, fewer).await;
        // A process is killed without a word.
        let (pod, _) = scene.pod_on("spot").await;
        assert!(scene.kubelet.kill(&pod), "{pod} has a process");
        let fewer = scene.trains_with(2, again + 1).await;
        scene.trains_with(3, fewer).await;
        let summary = scene.summary(run).await;
        scene.has_ended_well(&summary, STEPS).await;
        let account = summary.provisioned.as_ref().unwrap();
        assert_eq!((account.obtained, account.provider.as_str()), (5, "kubernetes"), "{}", scene.story());
        let crashed =
            scene.events().into_iter().filter(|event| matches!(event, Event::Crashed { .. })).count();
        assert_eq!(crashed, 1, "the worker on the revoked node left: {}", scene.story());
        let notes = scene.notes().join("\n");
        for words in ["(box transient, spot-", "(tower, steady-", "exceeded quota"] {
            assert!(notes.contains(words), "{words}: {notes}");
        }
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn a_pool_without_nodes_and_a_lost_node_are_done_without() {
    on_server(async |kubeconfig| {
        let steps = 16_000;
        let scene = Scene::new(&kubeconfig, "provision-stock", steps).await;
        // An autoscaler may make a node too many, which would stand ready.
        scene.autoscaler.set_quota("spot", 2);
        let run = scene.train();
        let step = scene.trains_with(3, 0).await;
        // The cloud has no more of these, and says nothing: the pod waits, until another pool stands in.
        scene.autoscaler.set_quota("spot", 0);
        let (_, node) = scene.pod_on("spot").await;
        let lost = Instant::now();
        scene.autoscaler.take(&node).await;
        let fewer = scene.trains_with(2, step + 1).await;
        let again = scene.trains_with(3, fewer).await;
        println!(
            "a node was lost and replaced from another pool within {:.1} s",
            lost.elapsed().as_secs_f64()
        );
        let (_, node) = scene.pod_on("steady").await;
        let lost = Instant::now();
        scene.autoscaler.take(&node).await;
        let fewer = scene.trains_with(2, again + 1).await;
        scene.trains_with(3, fewer).await;
        println!("another node was lost and replaced within {:.1} s", lost.elapsed().as_secs_f64());
        let summary = scene.summary(run).await;
        scene.has_ended_well(&summary, steps).await;
        let notes = scene.notes().join("\n");
        assert!(notes.contains("waited for too long"), "{notes}");
        assert!(scene.autoscaler.counts().1 > 0, "the autoscaler had no node for a pod");
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn whatever_is_killed_nothing_is_left_and_the_run_goes_on() {
    on_server(async |kubeconfig| {
        let steps = 300;
        let scene = Scene::new(&kubeconfig, "provision-kills", steps).await;
        let run = killed(&scene, 2, &mut Random::new(5)).await;
        let summary = scene.summary(run).await;
        scene.has_ended_well(&summary, steps).await;
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn sixty_kills_leave_nothing() {
    on_server(async |kubeconfig| {
        let scene = Scene::new(&kubeconfig, "provision-sixty", 1_000_000).await;
        let run = killed(&scene, KILLS, &mut Random::new(25)).await;
        drop(run);
        scene.succeeds(&["machines", "release", "--orphaned"]).await;
        assert_eq!(scene.left().await, (0, 0));
        scene.autoscaler.end().await;
    });
}

/// Kills the command, its client of the engine, and machines, at random moments; after every second end of the command
/// all machines are given back by another. The run goes on.
async fn killed(scene: &Scene, kills: usize, random: &mut Random) -> Live {
    let mut run = scene.train();
    let mut releases: Vec<f64> = Vec::new();
    let (mut commands, mut clients, mut machines) = (0, 0, 0);
    while commands < kills {
        sleep(Duration::from_millis(random.below(4000))).await;
        assert!(run.0.try_wait().unwrap().is_none(), "the run has ended: {}", scene.story());
        match random.below(4) {
            0 => clients += usize::from(kill_client(run.0.id()).await),
            1 => {
                let pods = scene.pods().await;
                let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
                machines += usize::from(names.first().is_some_and(|pod| scene.kubelet.kill(pod)));
            }
            _ => {
                drop(run);
                commands += 1;
                if commands % 2 == 0 {
                    let took_s = released(scene, commands).await;
                    println!("kill {commands}: all was released after {took_s:.1} s");
                    releases.push(took_s);
                }
                run = scene.train();
            }
        }
    }
    let longest = releases.iter().copied().fold(0.0, f64::max);
    println!(
        "{commands} kills of the command, {clients} of its client, {machines} of machines; {} releases, the longest \
         took {longest:.1} s; {} nodes were made",
        releases.len(),
        scene.autoscaler.counts().0
    );
    run
}

/// Gives everything back; how long that took.
async fn released(scene: &Scene, kill: usize) -> f64 {
    let since = Instant::now();
    let output = scene.call(&["machines", "release", "--orphaned"]).await;
    let took_s = since.elapsed().as_secs_f64();
    let said = format!("kill {kill}: {output:?}");
    assert!(output.status.success(), "{said}");
    assert_eq!(scene.left().await, (0, 0), "{said}");
    took_s
}

/// Kills a `kubectl` that the command has started, if it starts one soon.
async fn kill_client(command: u32) -> bool {
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let parent = || support::stat(process).and_then(|fields| fields.get(1)?.parse::<u32>().ok());
            if name.trim() == "kubectl" && parent() == Some(command) {
                let pid = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
                return rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok();
            }
        }
        sleep(Duration::from_millis(3)).await;
    }
    false
}

#[test]
#[ignore = "among those of many minutes"]
fn what_is_wrong_with_pods_is_named() {
    on_server(async |kubeconfig| {
        let scene = Scene::new(&kubeconfig, "provision-wrong", STEPS).await;
        let wrong = |namespace: &str, user: Option<&str>| {
            kubeconfig_of(&kubeconfig, namespace, user, &scene.kubeconfig);
        };
        let tells = async |words: &[&str]| {
            let run = scene.train();
            wait_for(&format!("{words:?}"), 30, async || {
                let notes = scene.notes().join("\n");
                words.iter().all(|word| notes.contains(word)).then_some(())
            })
            .await;
            let pid = rustix::process::Pid::from_child(&run.0);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            let mut run = run;
            wait_for("the end", 30, async || run.0.try_wait().unwrap()).await;
            std::fs::remove_dir_all(scene.path("state")).unwrap();
            assert_eq!(scene.left().await, (0, 0), "{words:?}");
        };
        wrong("provision-wrong", Some("user-without-rights"));
        tells(&["Kubernetes refused", "cannot create resource \"pods\""]).await;
        wrong("provision-nowhere", None);
        tells(&["namespaces \"provision-nowhere\" not found"]).await;
        wrong("provision-wrong", None);
        scene.plan(STEPS, &format!("{BARE_REGISTRY}trainer:1")).await;
        tells(&["its pod has failed", "exit code 127", "bellwether"]).await;
        scene.autoscaler.end().await;
    });
}
