//! What stands after the colon of a policy's name.

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

    /// The defaults of `known`, changed by `text`: values by place, or by name as in `p=-1`.
    pub(crate) fn read(known: &[(&'static str, f64, &'static str)], text: &str) -> Result<Options, String> {
        let mut options = Options(known.iter().map(|(name, value, _)| (*name, *value)).collect());
        for (place, item) in text.split(',').filter(|item| !item.is_empty()).enumerate() {
            let (slot, value) = match item.split_once('=') {
                Some((name, value)) => (options.0.iter_mut().find(|(known, _)| *known == name), value),
                None => (options.0.get_mut(place), item),
            };
            let (_, slot) = slot.ok_or_else(|| format!("it has no option for `{item}`"))?;
            *slot = value.parse().map_err(|_| format!("`{value}` is no number"))?;
            if !slot.is_finite() {
                return Err(format!("`{value}` is no finite number"));
            }
        }
        Ok(options)
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
