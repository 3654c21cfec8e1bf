//! The same all-reduce by PyTorch's gloo, where this machine's Python has it.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Python's side of one rank: reads `bytes repetitions` lines, answers with the seconds of each.
const SCRIPT: &str = r"
import sys, time
import torch
import torch.distributed as dist
rank, workers, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=workers)
print('ready', flush=True)
for line in sys.stdin:
    size, repetitions = map(int, line.split())
    values = torch.zeros(size // 4)
    dist.all_reduce(values)
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        dist.all_reduce(values)
        times.append(time.perf_counter() - begin)
    print(*times, flush=True)
";

/// One Python process per rank.
pub(super) struct Group {
    ranks: Vec<(Child, BufReader<ChildStdout>)>,
}

impl Group {
    /// Starts the processes, or says why there are none.
    pub(super) fn start(workers: u32) -> Result<Group, String> {
        let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        match quiet(Command::new("python3").args(["-c", "import torch.distributed"])) {
            Ok(status) if status.success() => {}
            Ok(_) => return Err("python3 cannot import torch.distributed".into()),
            Err(error) => return Err(format!("python3 does not start: {error}")),
        }
        Group::spawn(workers).map_err(|error| format!("gloo does not start: {error}"))
    }

    fn spawn(workers: u32) -> io::Result<Group> {
        // Freed again at once; torch binds it a moment later.
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut group = Group { ranks: Vec::new() };
        for rank in 0..workers {
            let mut child = Command::new("python3")
                .args(["-c", SCRIPT, &rank.to_string(), &workers.to_string(), &port.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let output = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
            group.ranks.push((child, BufReader::new(output)));
        }
        for (_, output) in &mut group.ranks {
            read_line(output)?;
        }
        Ok(group)
    }

    /// Seconds of each repetition on every rank.
    pub(super) fn measure(&mut self, bytes: u64, repetitions: u64) -> io::Result<Vec<f64>> {
        for (child, _) in &mut self.ranks {
            let input = child.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe"))?;
            writeln!(input, "{bytes} {repetitions}")?;
        }
        let mut samples = Vec::new();
        for (_, output) in &mut self.ranks {
            let line = read_line(output)?;
            samples.extend(line.split_whitespace().filter_map(|word| word.parse::<f64>().ok()));
        }
        Ok(samples)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (child, _) in &mut self.ranks {
            // One that has ended cannot be killed, which is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read_line(output: &mut BufReader<ChildStdout>) -> io::Result<String> {
    let mut line = String::new();
    match output.read_line(&mut line)? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a Python process ended")),
        _ => Ok(line),
    }
}
