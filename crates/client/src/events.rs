//! Server-sent events: a name and JSON data each, from a reader that need not be trusted.

use std::io::{BufRead, BufReader, Read};

use serde_json::Value;

/// More bytes than an event has.
const EVENT_BYTES: usize = 4 << 20;

/// Events as they arrive.
pub struct Events {
    lines: BufReader<Box<dyn Read>>,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What kind of event it is: `journal`, `log` or `end`.
    pub name: String,
    /// What it says.
    pub data: Value,
}

impl Events {
    pub(crate) fn new(reader: impl Read + 'static) -> Events {
        Events { lines: BufReader::new(Box::new(reader)) }
    }

    /// Reads up to the end of the next event; `None` at the end of the stream.
    fn read(&mut self) -> std::io::Result<Option<Event>> {
        let (mut name, mut data) = (String::new(), String::new());
        loop {
            let mut line = Vec::new();
            let room = EVENT_BYTES.saturating_sub(data.len() + name.len());
            self.lines.by_ref().take(room as u64).read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                // An event whose end is missing is none.
                let too_long = line.len() == room;
                return if too_long { Err(std::io::Error::other("an event is too long")) } else { Ok(None) };
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                // Comments keep a connection alive, and have no data.
                if let Ok(data) = serde_json::from_str(&data) {
                    return Ok(Some(Event { name, data }));
                }
                (name, data) = (String::new(), String::new());
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut name),
                "data" => {
                    data.push_str(value);
                    data.push('\n');
                }
                _ => {}
            }
        }
    }
}

/// Waits for each event. An item is an error if the connection breaks, if it stays silent for 45 s, or if an event is
/// too long.
impl Iterator for Events {
    type Item = std::io::Result<Event>;

    fn next(&mut self) -> Option<std::io::Result<Event>> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(String, Value)> {
        let mut events = Events::new(std::io::Cursor::new(text.as_bytes().to_vec()));
        let mut all = Vec::new();
        while let Some(event) = events.read().unwrap() {
            all.push((event.name, event.data));
        }
        all
    }

    #[test]
    fn events_are_read_and_comments_are_not() {
        let text =
            ": alive\n\nevent: log\ndata: {\"a\":\ndata: 1}\n\n:\n\ndata:2\r\n\r\nevent: half\ndata: 3\n";
        assert_eq!(all(text), [("log".into(), serde_json::json!({"a": 1})), (String::new(), 2.into())]);
        assert_eq!(all(""), []);
        assert_eq!(all("data: no JSON\n\nevent: x\n\n\n"), []);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut events = Events::new(std::io::repeat(b'x'));
        assert!(events.read().unwrap_err().to_string().contains("too long"));
        let mut events = Events::new(std::io::Cursor::new(b"data: 12345678\n".repeat(600_000)));
        assert!(events.read().unwrap_err().to_string().contains("too long"));
    }
}
