//! The policies that can be named: the built-in ones, and those that a program adds.

use bellwether_core::policy::Policy;
use bellwether_core::queue::QueueTree;
use bellwether_core::{InputError, ParseError};

use crate::enforce_limits::WithLimits;
use crate::options::{self, Options};
use crate::policy::{About, CATALOGUE};
use crate::queues::WithQueues;

/// Policies by their names. `simulate` and the daemon name a policy through one, so that a program that adds its own
/// can use it wherever a built-in one can be used.
///
/// ```
/// use bellwether_sched::registry::Registry;
/// let registry = Registry::built_in();
/// assert!(registry.parse("las2d:3250,7200").is_ok());
/// let error = registry.parse("fivo").err();
/// assert!(error.is_some_and(|error| error.is_unknown() && error.hint == "did you mean `fifo`?"));
/// ```
#[derive(Debug, Clone)]
pub struct Registry(Vec<About>);

impl Default for Registry {
    fn default() -> Registry {
        Registry::built_in()
    }
}

impl Registry {
    /// The built-in policies.
    pub fn built_in() -> Registry {
        Registry(CATALOGUE.iter().map(|about| **about).collect())
    }

    /// Adds a policy, so that it can be named.
    ///
    /// # Errors
    ///
    /// A name that another policy has, or that cannot be written where policies are named: it holds lower-case
    /// letters, digits and `_`, and begins with a letter.
    pub fn register(&mut self, about: About) -> Result<(), InputError> {
        let name = about.name;
        let is_word = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_word {
            return Err(InputError::new("policy", format!("`{name}` cannot name a policy"))
                .hint("use lower-case letters, digits and `_`, a letter first"));
        }
        if self.find(name).is_some() {
            return Err(InputError::new("policy", format!("there is a policy `{name}` already"))
                .hint("choose another name"));
        }
        self.0.push(about);
        Ok(())
    }

    /// All policies: the built-in ones in the order in which they are explained, then those that were added.
    pub fn iter(&self) -> impl Iterator<Item = &About> {
        self.0.iter()
    }

    /// The policy of this name.
    pub fn find(&self, name: &str) -> Option<&About> {
        self.0.iter().find(|about| about.name == name)
    }

    /// The policy that `text` names, with options after a colon: `las2d:3250,7200` or `pollux:p=-1,interval=60`.
    /// Before it is asked, devices are taken from jobs that hold what their limits do not allow.
    ///
    /// # Errors
    ///
    /// A name or an option that is not there, with the nearest that is, or a value that cannot be.
    pub fn parse(&self, text: &str) -> Result<(About, Box<dyn Policy + Send>), InputError> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let place = format!("policy `{text}`");
        let names = || self.0.iter().map(|about| about.name);
        let about = self.find(name).ok_or_else(|| ParseError::one_of("policy", name, names()).at(&place))?;
        let usage = |error: ParseError| error.at(&place).hint(options::usage(about.options));
        let options = Options::read(about.options, values).map_err(usage)?;
        let policy = (about.make)(&options).map_err(usage)?;
        Ok((*about, Box::new(WithLimits::new(policy, about.gangs))))
    }

    /// The policy that `text` names, one in each [queue](crate::queues).
    ///
    /// # Errors
    ///
    /// As [`parse`](Registry::parse).
    pub fn parse_with_queues(&self, text: &str, tree: &QueueTree) -> Result<(About, WithQueues), InputError> {
        let (about, _) = self.parse(text)?;
        let mut policies = Vec::new();
        for _ in tree.leaves() {
            policies.push(self.parse(text)?.1);
        }
        let make = |_: &str| policies.pop().expect("there is a policy for each queue where jobs are");
        Ok((about, WithQueues::new(tree.clone(), about.gangs, make)))
    }
}

/// Names of policies between commas. Options hold commas too: a number or `key=value` belongs to the name
/// before it.
pub fn names(texts: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for item in texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|item| !item.is_empty()) {
        let is_option =
            item.parse::<f64>().is_ok() || item.split(':').next().is_some_and(|word| word.contains('='));
        match names.last_mut() {
            Some(last) if is_option && last.contains(':') => {
                last.push(',');
                last.push_str(item);
            }
            _ => names.push(item.to_owned()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn options_stay_with_their_policy() {
        let given = ["fifo,las2d:3250,7200,srtf".to_owned(), "pollux:p=-1,interval=60".to_owned()];
        assert_eq!(names(&given), ["fifo", "las2d:3250,7200", "srtf", "pollux:p=-1,interval=60"]);
    }
}
