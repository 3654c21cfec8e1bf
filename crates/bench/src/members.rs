//! Processes of this program that measure together: started by a conductor, met over a control connection,
//! told what to do.
//!
//! They speak in lines of JSON. A member that is told its measurement is over hears nothing more: the
//! conductor hangs up.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_runtime::channel::{Cipher, Listener, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::programs;

/// Time for all members to start and connect.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Time between two looks for another member.
const LOOK: Duration = Duration::from_millis(5);

/// How members reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over a Unix socket, which brings shared memory.
    Shared,
    /// Over TCP as it is.
    Tcp,
    /// Over TCP with the fastest cipher.
    Encrypted,
}

impl Way {
    /// The token by which members meet on this way.
    pub(crate) fn token(self, token: &Token) -> Token {
        match self {
            Way::Shared | Way::Tcp => token.clone().with_cipher(Cipher::Unencrypted),
            Way::Encrypted => token.clone().with_cipher(Cipher::fastest()),
        }
    }

    fn listen(self, token: &Token) -> io::Result<Listener> {
        let (address, token) = (([127, 0, 0, 1], 0).into(), self.token(token));
        // Others of this machine may knock; that does not concern the measurement.
        let on_refusal = Arc::new(|_| ());
        match self {
            Way::Shared => Listener::bind(address, &token, on_refusal),
            Way::Tcp | Way::Encrypted => Listener::bind_remote(address, &token, on_refusal),
        }
    }
}

/// What a member needs to know at its start.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct MemberArguments {
    /// Where the conductor listens
    #[arg(long)]
    control: SocketAddr,
    /// This process's rank
    #[arg(long)]
    rank: u32,
}

/// Starts a member as a process of this program, which `verb` names.
pub(crate) fn start(verb: &str, arguments: MemberArguments) -> Result<Child, Failure> {
    let MemberArguments { control, rank } = arguments;
    let mut command = programs::member(verb)?;
    command.args(["--control", &control.to_string(), "--rank", &rank.to_string()]);
    command.spawn().map_err(failed)
}

/// A member's first line, after it was told the token.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    rank: u32,
    /// Where it listens for other members, on each way.
    addresses: Vec<SocketAddr>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// Seconds.
    Samples(Vec<f64>),
    Fault(String),
}

/// Lines of JSON over TCP.
struct Conversation {
    reader: BufReader<TcpStream>,
}

impl Conversation {
    fn new(stream: TcpStream) -> io::Result<Conversation> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(Conversation { reader: BufReader::new(stream) })
    }

    fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line)
    }

    /// The next line; `None` when the other side hung up.
    fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        match self.reader.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&line)?)),
        }
    }

    fn expect<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        self.hear()?.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"))
    }
}

/// All members, as their conductor sees them; ended with this, however the measurement ends.
pub(crate) struct Group {
    conversations: Vec<Conversation>,
    /// Where each listens for the others, by rank and then by way.
    pub(crate) addresses: Vec<Vec<SocketAddr>>,
    _children: Children,
}

struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended cannot be killed, which is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::at("a process of the measurement", error)
}

impl Group {
    /// Has `spawn` start `count` members, processes that call [`member`], and waits until all have said their names.
    pub(crate) fn gather(
        count: u32,
        mut spawn: impl FnMut(MemberArguments) -> Result<Child, Failure>,
    ) -> Result<Group, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
        let control = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let mut children = Children(Vec::new());
        for rank in 0..count {
            children.0.push(spawn(MemberArguments { control, rank })?);
        }
        let token = Token::random().map_err(failed)?;
        let deadline = Instant::now() + START_DEADLINE;
        let mut greeted: Vec<Option<(Conversation, Vec<SocketAddr>)>> = (0..count).map(|_| None).collect();
        while greeted.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let (conversation, greeting) = greet(stream, &token).map_err(failed)?;
                    if let Some(place) = greeted.get_mut(greeting.rank as usize) {
                        *place = Some((conversation, greeting.addresses));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    children.check()?;
                    if Instant::now() > deadline {
                        return Err(Failure::at("the measurement", "its processes did not start in time"));
                    }
                    std::thread::sleep(LOOK);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let (conversations, addresses) = greeted.into_iter().flatten().unzip();
        Ok(Group { conversations, addresses, _children: children })
    }

    /// Gives some members each a command at the same time; their samples.
    pub(crate) fn tell<C: Serialize>(&mut self, commands: &[(usize, C)]) -> Result<Vec<f64>, Failure> {
        let fault = |rank: usize, why: String| Failure::at(format!("process {rank} of the measurement"), why);
        for (rank, command) in commands {
            self.conversations[*rank].say(command).map_err(|e| fault(*rank, e.to_string()))?;
        }
        let mut all = Vec::new();
        for (rank, _) in commands {
            match self.conversations[*rank].expect().map_err(|e| fault(*rank, e.to_string()))? {
                Reply::Samples(samples) => all.extend(samples),
                Reply::Fault(why) => return Err(fault(*rank, why)),
            }
        }
        Ok(all)
    }
}

impl Children {
    /// None has ended already.
    fn check(&mut self) -> Result<(), Failure> {
        match self.0.iter_mut().position(|child| matches!(child.try_wait(), Ok(Some(_)))) {
            Some(rank) => {
                let what = "it ended before it could be measured";
                Err(Failure::at(format!("process {rank} of the measurement"), what))
            }
            None => Ok(()),
        }
    }
}

fn greet(stream: TcpStream, token: &Token) -> io::Result<(Conversation, Greeting)> {
    let mut conversation = Conversation::new(stream)?;
    conversation.say(&token.to_text())?;
    let greeting = conversation.expect()?;
    Ok((conversation, greeting))
}

/// Runs one member until the conductor hangs up.
///
/// It listens on each of the `ways`. `begin` is given its rank, the token and the listeners, and says how it obeys a
/// command, with seconds as its answer.
///
/// # Errors
///
/// Returns an error if the conductor cannot be reached. Faults of a measurement go to the conductor.
pub(crate) fn member<C: DeserializeOwned, O: FnMut(C) -> io::Result<Vec<f64>>>(
    arguments: MemberArguments,
    ways: &[Way],
    begin: impl FnOnce(u32, Token, &[Listener]) -> O,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::at("the conductor of the measurement", error);
    let mut conductor = TcpStream::connect(arguments.control).and_then(Conversation::new).map_err(failed)?;
    let token = conductor.expect::<String>().map_err(failed)?;
    let token = Token::parse(&token).ok_or_else(|| failed(io::Error::other("its token is none")))?;
    let listeners =
        ways.iter().map(|way| way.listen(&token)).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let addresses = listeners.iter().map(Listener::local_addr).collect();
    let greeting = Greeting { rank: arguments.rank, addresses };
    conductor.say(&greeting).map_err(failed)?;
    let mut obey = begin(arguments.rank, token, &listeners);
    while let Some(command) = conductor.hear().map_err(failed)? {
        let reply = match obey(command) {
            Ok(samples) => Reply::Samples(samples),
            Err(error) => Reply::Fault(error.to_string()),
        };
        conductor.say(&reply).map_err(failed)?;
    }
    Ok(())
}
