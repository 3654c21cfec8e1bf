//! `bellwether users`: who else may ask a daemon, and for what.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_client::Client;
use bellwether_core::InputError;
use bellwether_render::json_line;
use bellwether_render::table::{fitted, width};
use bellwether_serve::api::users::{Role, User};
use bellwether_serve::connection::Connection;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::args::DaemonArguments;
use super::connect;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct UsersArguments {
    #[command(subcommand)]
    pub(crate) act: Option<UsersAct>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UsersAct {
    /// Make a user, and write the file with which the user reaches the daemon
    Add(AddArguments),
    /// Take a user's token back; the user's jobs stay
    Remove(RemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// Name of the user
    #[arg(value_name = "USER")]
    pub(crate) name: String,
    /// What the user may do: look at jobs; submit and steer them, too; or steer all jobs, the policy and the queues
    #[arg(long, value_enum)]
    pub(crate) role: RoleArgument,
    /// A queue whose jobs that concerns, with the queues below it; several times for several [default: all queues]
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Vec<String>,
    /// Let the user submit jobs that run Python scripts: these run as the daemon's user, and can read what that one can
    #[arg(long)]
    pub(crate) scripts: bool,
    /// The file with address, fingerprint and token; it must not exist [default: USER.connection.json]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// Name of the user
    #[arg(value_name = "USER")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) daemon: DaemonArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RoleArgument {
    Observe,
    Submit,
    Operate,
}

impl From<RoleArgument> for Role {
    fn from(role: RoleArgument) -> Role {
        match role {
            RoleArgument::Observe => Role::Observe,
            RoleArgument::Submit => Role::Submit,
            RoleArgument::Operate => Role::Operate,
        }
    }
}

pub(crate) fn users(arguments: &UsersArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    match &arguments.act {
        None => {
            let users = connect::find(&arguments.daemon, printer)?.users()?;
            list(&users, arguments.daemon.state.format, printer);
        }
        Some(UsersAct::Add(arguments)) => add(arguments, printer)?,
        Some(UsersAct::Remove(RemoveArguments { name, daemon })) => {
            let users = connect::find(daemon, printer)?.remove_user(name)?;
            list(&users, daemon.state.format, printer);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(users: &[User], format: Format, printer: &Printer) {
    if format == Format::Json {
        return printer.out(json_line(&users));
    }
    if users.is_empty() {
        return printer.out("no users; the daemon's owner alone may ask it");
    }
    let mut rows = vec![["USER", "ROLE", "QUEUES", "SCRIPTS"].map(String::from).to_vec()];
    rows.extend(users.iter().map(|user| {
        let queues = user.queues.as_ref().map_or("all".into(), |queues| queues.join(", "));
        let scripts = if user.scripts { "yes" } else { "no" };
        vec![user.name.clone(), user.role.name().into(), queues, scripts.into()]
    }));
    printer.out(fitted(rows, &[], width()).trim_end());
}

fn add(arguments: &AddArguments, printer: &Printer) -> Result<(), Failure> {
    let path =
        arguments.output.clone().unwrap_or_else(|| format!("{}.connection.json", arguments.name).into());
    let daemon = connect::find(&arguments.daemon, printer)?;
    // First, so that a token is never made for a file that cannot be.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(|error| {
        InputError::new(path.display().to_string(), error.to_string())
            .hint("choose another file with --output")
    })?;
    let added = admit(arguments, &daemon, file, &path);
    if added.is_err() {
        // It is ours, and empty or of no use.
        let _ = fs::remove_file(&path);
    }
    let is_reachable = added?;
    match arguments.daemon.state.format {
        Format::Json => printer.out(json!({ "user": arguments.name, "connection": path })),
        Format::Table => printer.out(format_args!(
            "{} may come: hand over {} by a safe way; BELLWETHER_CONNECTION names it to the commands",
            arguments.name,
            path.display()
        )),
    }
    if !is_reachable {
        printer.note(
            "warning: this daemon takes no tokens, because it speaks plain HTTP on loopback\n  hint: restart it with --https, \
             or with --listen and another address of this machine",
        );
    }
    Ok(())
}

/// Makes the user, and writes what the user needs; says whether the daemon takes tokens.
fn admit(arguments: &AddArguments, daemon: &Client, mut file: File, path: &Path) -> Result<bool, Failure> {
    let queues = Some(arguments.queue.clone()).filter(|queues| !queues.is_empty());
    let (name, role) = (arguments.name.clone(), arguments.role.into());
    let admitted = daemon.add_user(&User { name, role, queues, scripts: arguments.scripts })?;
    let url = connect::url(daemon).map_or(admitted.url, String::from);
    let connection = Connection { url, fingerprint: admitted.fingerprint, token: admitted.token };
    let text = serde_json::to_string_pretty(&connection).expect("a connection is plain data");
    let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // A token that is in no file is of no use.
        let _ = daemon.remove_user(&arguments.name);
        return Err(Failure::at(path.display().to_string(), error));
    }
    Ok(admitted.takes_tokens)
}
