//! The path of a field. It is joined to a string only when an error needs it: most paths are never shown.

use std::fmt::{self, Display, Write};
use std::rc::Rc;

/// How many steps a path holds before it has to allocate.
const STEPS: usize = 4;

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

/// Steps from the root of an object to a field.
#[derive(Clone)]
pub(crate) struct Path<'a> {
    above: Option<Rc<Above<'a>>>,
    steps: [Step<'a>; STEPS],
    count: usize,
}

/// The beginning of a path, shared by the fields below it.
enum Above<'a> {
    Path(Path<'a>),
    /// A path followed by a dotted path that does not live as long as the object.
    Dotted(Path<'a>, Box<str>),
    /// A path followed by a key that does not live as long as the object.
    Key(Path<'a>, Box<str>),
}

impl<'a> Path<'a> {
    /// The whole object.
    pub(crate) fn root() -> Self {
        Self { above: None, steps: [Step::Index(0); STEPS], count: 0 }
    }

    fn below(above: Above<'a>) -> Self {
        Self { above: Some(Rc::new(above)), ..Self::root() }
    }

    /// A path below, by a name from the table.
    pub(crate) fn field(&self, name: &'static str) -> Self {
        self.step(Step::Field(name))
    }

    /// A path below, by a name or a dotted path.
    pub(crate) fn dotted(&self, path: &str) -> Self {
        Self::below(Above::Dotted(self.clone(), path.into()))
    }

    /// An item of the list here.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    /// An entry of the map here, by a key of the object.
    pub(crate) fn entry(&self, key: &'a str) -> Self {
        self.step(Step::Key(key))
    }

    /// An entry of the map here.
    pub(crate) fn key(&self, key: &str) -> Self {
        Self::below(Above::Key(self.clone(), key.into()))
    }

    /// The same path, to which many steps can be added without allocating.
    pub(crate) fn shared(&self) -> Self {
        if self.count == 0 { self.clone() } else { Self::below(Above::Path(self.clone())) }
    }

    fn is_root(&self) -> bool {
        self.count == 0 && self.above.is_none()
    }

    fn step(&self, step: Step<'a>) -> Self {
        let mut below = if self.count == STEPS { self.shared() } else { self.clone() };
        below.steps[below.count] = step;
        below.count += 1;
        below
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.above.as_deref() {
            None => {}
            Some(Above::Path(path)) => path.fmt(f)?,
            Some(Above::Dotted(path, rest)) if path.is_root() => f.write_str(rest)?,
            Some(Above::Dotted(path, rest)) => write!(f, "{path}.{rest}")?,
            Some(Above::Key(path, key)) => write!(f, "{path}[{key}]")?,
        }
        for (at, step) in self.steps[..self.count].iter().enumerate() {
            match step {
                Step::Field(name) => {
                    if at > 0 || self.above.is_some() {
                        f.write_char('.')?;
                    }
                    f.write_str(name)?;
                }
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn steps_are_joined() {
        let list = Path::root().field("spec").field("template").field("spec").field("containers");
        assert_eq!(
            list.shared().index(3).field("image").to_string(),
            "spec.template.spec.containers[3].image"
        );
        let long = list.index(0).field("a").field("b").field("c").field("d").entry("e");
        assert_eq!(long.to_string(), "spec.template.spec.containers[0].a.b.c.d[e]");
        assert_eq!(Path::root().dotted("a.b").key("k").field("x").dotted("y").to_string(), "a.b[k].x.y");
        assert_eq!(
            (Path::root().to_string(), Path::root().shared().index(1).to_string()),
            (String::new(), "[1]".to_owned())
        );
    }
}
