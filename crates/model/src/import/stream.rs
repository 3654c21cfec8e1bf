//! Reads a trace event by event, so that memory does not grow with what is not kept.
//!
//! Tools write the same field now as a number and now as a string, and new fields appear with each version.
//! So nothing here fails for the type of a field: what has no meaning is as good as absent. What is not JSON fails.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use bellwether_core::error::InputError;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// A point in time or a duration beyond this cannot be a measurement: 300 years in microseconds.
const LARGEST_US: f64 = 1e16;

/// One event of a trace.
#[derive(Debug, Default)]
pub(super) struct Event<'de> {
    pub(super) phase: Text<'de>,
    pub(super) category: Text<'de>,
    pub(super) name: Text<'de>,
    pub(super) pid: Text<'de>,
    pub(super) tid: Text<'de>,
    start_us: Number,
    duration_us: Number,
    pub(super) args: Args<'de>,
}

/// What is used of an event's arguments.
#[derive(Debug, Default)]
pub(super) struct Args<'de> {
    pub(super) name: Text<'de>,
    pub(super) collective: Text<'de>,
    pub(super) dtype: Text<'de>,
    pub(super) elements: Number,
    pub(super) dims: Shape,
    pub(super) types: Texts<'de>,
    pub(super) correlation: Text<'de>,
    pub(super) long_name: Text<'de>,
    pub(super) group: Text<'de>,
    pub(super) step_name: Text<'de>,
    pub(super) tensors: Text<'de>,
}

/// A string; numbers become strings, so that names of processes and threads compare.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Text<'de>(Cow<'de, str>);

/// A number, if it was one or a string that holds one.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Number(pub(super) Option<f64>);

/// The strings of a list.
#[derive(Debug, Default)]
pub(super) struct Texts<'de>(pub(super) Vec<Text<'de>>);

/// Sizes of tensors, which nest where an operand is a list of tensors.
#[derive(Debug, Default)]
pub(super) enum Shape {
    /// Neither a number nor a list.
    #[default]
    None,
    /// A number.
    Size(f64),
    /// A list.
    List(Vec<Shape>),
}

/// What stands beside the events.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The keys of the outermost object.
    pub(super) keys: Vec<String>,
    /// Names of the devices that the trace describes.
    pub(super) devices: Vec<String>,
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Event<'_> {
    /// Begin and end in seconds, of an event that has both; `None` for a duration that is none.
    pub(super) fn span(&self) -> Option<(f64, f64)> {
        let (start, duration) = (self.start_us.0?, self.duration_us.0?);
        let sound = start.abs() <= LARGEST_US && (0.0..=LARGEST_US).contains(&duration);
        sound.then_some((start * 1e-6, (start + duration) * 1e-6))
    }
}

impl Shape {
    /// Elements of a tensor of this shape, or of all tensors where it is a list of shapes.
    pub(super) fn elements(&self) -> Option<f64> {
        let Shape::List(items) = self else { return None };
        if items.iter().any(|item| matches!(item, Shape::List(_))) {
            return items.iter().map(Shape::elements).sum();
        }
        let size = |item: &Shape| if let Shape::Size(size) = item { Some(*size) } else { None };
        items.iter().map(size).product()
    }

    /// The part of this number, of a list.
    pub(super) fn item(&self, number: usize) -> &Shape {
        const NONE: &Shape = &Shape::None;
        if let Shape::List(items) = self { items.get(number).unwrap_or(NONE) } else { NONE }
    }

    /// The number itself.
    pub(super) fn size(&self) -> Option<f64> {
        if let Shape::Size(size) = self { Some(*size) } else { None }
    }
}

/// Hands every event to `visit`, in the order of the file.
pub(super) fn walk<'de>(
    bytes: &'de [u8],
    place: &str,
    visit: &mut dyn FnMut(Event<'de>),
) -> Result<Header, InputError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let header = Trace { visit }.deserialize(&mut json).and_then(|header| json.end().map(|()| header));
    header.map_err(|error| {
        InputError::new(place, format!("not a trace: {error}"))
            .hint("a trace is the JSON file that the profiler of PyTorch or of TensorFlow writes, unpacked")
    })
}

/// Something that can be made of whatever stands in the file.
trait Take<'de>: Default {
    fn text(_: Cow<'de, str>) -> Self {
        Self::default()
    }

    fn number(_: f64) -> Self {
        Self::default()
    }

    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn map<A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Reads whatever stands in the file as a `T`.
struct Lenient<T>(T);

struct Any<T>(PhantomData<T>);

impl<'de, T: Take<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any(PhantomData)).map(Lenient)
    }
}

impl<'de, T: Take<'de>> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        Ok(T::number(value as f64))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        Ok(T::number(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        Ok(T::number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        Ok(T::text(Cow::Owned(value.to_string())))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<T, E> {
        Ok(T::text(Cow::Borrowed(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::list(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
        T::map(entries)
    }
}

impl<'de> Take<'de> for Text<'de> {
    fn text(value: Cow<'de, str>) -> Self {
        Text(value)
    }

    fn number(value: f64) -> Self {
        Text(Cow::Owned(value.to_string()))
    }
}

impl<'de> Take<'de> for Number {
    fn text(value: Cow<'de, str>) -> Self {
        Number(value.trim().parse().ok().filter(|value: &f64| value.is_finite()))
    }

    fn number(value: f64) -> Self {
        Number(Some(value).filter(|value| value.is_finite()))
    }
}

impl<'de> Take<'de> for Texts<'de> {
    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut texts = Vec::new();
        while let Some(Lenient(text)) = items.next_element()? {
            texts.push(text);
        }
        Ok(Texts(texts))
    }
}

impl<'de> Take<'de> for Shape {
    fn number(value: f64) -> Self {
        Shape::Size(value)
    }

    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut shapes = Vec::new();
        while let Some(Lenient(shape)) = items.next_element()? {
            shapes.push(shape);
        }
        Ok(Shape::List(shapes))
    }
}

impl<'de> Take<'de> for Args<'de> {
    fn map<A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        let mut args = Args::default();
        while let Some(Lenient(key)) = entries.next_key::<Lenient<Text<'de>>>()? {
            match key.as_str() {
                "name" => args.name = value(&mut entries)?,
                "Collective name" => args.collective = value(&mut entries)?,
                "dtype" => args.dtype = value(&mut entries)?,
                "In msg nelems" => args.elements = value(&mut entries)?,
                "Input Dims" | "Input dims" => args.dims = value(&mut entries)?,
                "Input type" => args.types = value(&mut entries)?,
                "correlation" => args.correlation = value(&mut entries)?,
                "long_name" | "tf_op" => args.long_name = value(&mut entries)?,
                "group_id" => args.group = value(&mut entries)?,
                "step_name" => args.step_name = value(&mut entries)?,
                "shape" | "tensor_shapes" => args.tensors = value(&mut entries)?,
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(args)
    }
}

impl<'de> Take<'de> for Event<'de> {
    fn map<A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        let mut event = Event::default();
        while let Some(Lenient(key)) = entries.next_key::<Lenient<Text<'de>>>()? {
            match key.as_str() {
                "ph" => event.phase = value(&mut entries)?,
                "cat" => event.category = value(&mut entries)?,
                "name" => event.name = value(&mut entries)?,
                "pid" => event.pid = value(&mut entries)?,
                "tid" => event.tid = value(&mut entries)?,
                "ts" => event.start_us = value(&mut entries)?,
                "dur" => event.duration_us = value(&mut entries)?,
                "args" => event.args = value(&mut entries)?,
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(event)
    }
}

fn value<'de, T: Take<'de>, A: MapAccess<'de>>(entries: &mut A) -> Result<T, A::Error> {
    entries.next_value::<Lenient<T>>().map(|value| value.0)
}

/// The names in a list of devices.
#[derive(Default)]
struct Devices(Vec<String>);

impl<'de> Take<'de> for Devices {
    fn list<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut names = Vec::new();
        // A device's name has the key that an argument's name has.
        while let Some(Lenient(device)) = items.next_element::<Lenient<Args<'de>>>()? {
            names.push(device.name.as_str().to_string());
        }
        Ok(Devices(names))
    }
}

/// The outermost value: an object with `traceEvents`, or the list of events alone.
struct Trace<'v, 'de> {
    visit: &'v mut dyn FnMut(Event<'de>),
}

impl<'de> DeserializeSeed<'de> for Trace<'_, 'de> {
    type Value = Header;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Header, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Trace<'_, 'de> {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        while let Some(Lenient(key)) = entries.next_key::<Lenient<Text<'de>>>()? {
            match key.as_str() {
                "traceEvents" => entries.next_value_seed(Events { visit: &mut *self.visit })?,
                "deviceProperties" => header.devices = value::<Devices, A>(&mut entries)?.0,
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
            if header.keys.len() < 32 {
                header.keys.push(key.as_str().to_string());
            }
        }
        Ok(header)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Header, A::Error> {
        Events { visit: self.visit }.visit_seq(items)?;
        Ok(Header::default())
    }
}

struct Events<'v, 'de> {
    visit: &'v mut dyn FnMut(Event<'de>),
}

impl<'de> DeserializeSeed<'de> for Events<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(event)) = items.next_element()? {
            (self.visit)(event);
        }
        Ok(())
    }
}
