//! What stands after the colon of a policy's name.

use bellwether_core::ParseError;

/// The values of a policy's options.
#[derive(Debug, Clone, PartialEq)]
pub struct Options(Vec<(&'static str, f64)>);

impl Options {
    /// The value of an option.
    ///
    /// # Panics
    ///
    /// When the policy has no such option.
    pub fn get(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value).expect("a policy reads the options that it declares")
    }

    /// All values of an option that may be repeated: one whose name ends in `...`.
    pub fn all(&self, name: &str) -> Vec<f64> {
        self.0.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
    }

    /// The error that the value of an option is too small or too large.
    ///
    /// # Panics
    ///
    /// When the policy has no such option.
    pub fn out_of_range(&self, name: &str, expected: &str) -> ParseError {
        ParseError::out_of_range(format!("option {name}"), self.get(name), expected)
    }

    /// The defaults of `known`, changed by `text`: values by place, or by name as in `p=-1`. Where the first option may
    /// be repeated, it has all values without a name, and its defaults hold only if there are none.
    pub(crate) fn read(
        known: &[(&'static str, f64, &'static str)],
        text: &str,
    ) -> Result<Options, ParseError> {
        let mut options = Options(known.iter().map(|(name, value, _)| (*name, *value)).collect());
        let items = || text.split(',').filter(|item| !item.is_empty());
        let unnamed = || items().filter(|item| !item.contains('='));
        let repeated = known.first().map(|(name, ..)| *name).filter(|name| name.ends_with("..."));
        if let Some(name) = repeated.filter(|_| unnamed().next().is_some()) {
            options.0.retain(|(known, _)| *known != name);
            for item in unnamed() {
                options.0.push((name, number(item)?));
            }
        }
        for (place, item) in items().enumerate() {
            let (slot, value) = match item.split_once('=') {
                Some((name, value)) => (options.0.iter_mut().find(|(known, _)| *known == name), value),
                None if repeated.is_some() => continue,
                None => (options.0.get_mut(place), item),
            };
            let (_, slot) = slot.ok_or_else(|| {
                let name = item.split('=').next().unwrap_or(item);
                match known.is_empty() {
                    true => ParseError::new("option", name, "none"),
                    false => ParseError::one_of("option", name, known.iter().map(|(name, ..)| *name)),
                }
            })?;
            *slot = number(value)?;
        }
        Ok(options)
    }
}

fn number(text: &str) -> Result<f64, ParseError> {
    let value: f64 = text.parse().map_err(|_| ParseError::new("value", text, "a number"))?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(ParseError::out_of_range("value", text, "a finite number"))
    }
}

/// How to write options.
pub(crate) fn usage(known: &[(&'static str, f64, &'static str)]) -> String {
    if known.is_empty() {
        return "it takes no options".to_owned();
    }
    let one = |(name, value, what): &(&str, f64, &str)| format!("{name}={value} ({what})");
    format!("its options and their defaults: {}", known.iter().map(one).collect::<Vec<_>>().join(", "))
}
