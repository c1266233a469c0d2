//! The functions and their signatures, from `functions.txt`.

use super::Type;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What `C` stands for: types whose values have an order.
const ORDERED: [Type; 8] = [
    Type::Bool,
    Type::Int,
    Type::Uint,
    Type::Double,
    Type::String,
    Type::Bytes,
    Type::Timestamp,
    Type::Duration,
];

/// One way to call a function. Its type variables are numbered from 0.
#[derive(Debug)]
pub struct Overload {
    /// Whether the first argument is what the function is called on.
    pub is_member: bool,
    pub arguments: Vec<Type>,
    pub result: Type,
    pub variables: usize,
}

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let text = include_str!("functions.txt");
    text.lines().try_fold(HashMap::new(), read).expect("the table in this folder can be read")
});

/// The overloads of a function, if there is one of that name.
pub fn find(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

type Functions = HashMap<String, Vec<Overload>>;

/// Adds the overloads of a line of the table.
fn read(mut all: Functions, line: &str) -> Option<Functions> {
    if line.is_empty() || line.starts_with('#') {
        return Some(all);
    }
    let mut words = line.split(' ');
    let (name, signature, result) = (words.next()?, words.next()?, words.next()?);
    let is_template = signature.split(['(', ')', ',', '.']).any(|word| word == "C");
    for ordered in &ORDERED[..if is_template { ORDERED.len() } else { 1 }] {
        // The arguments are in the last pair of parentheses that is not inside another one.
        let open = match signature.strip_prefix('(') {
            Some(_) => 0,
            None => signature.find(".(")? + 1,
        };
        let receiver = signature.get(..open.saturating_sub(1)).filter(|text| !text.is_empty());
        let inside = signature.get(open + 1..)?.strip_suffix(')')?;
        let types = receiver.into_iter().chain(split(inside));
        let arguments: Vec<Type> = types.map(|text| read_type(text, ordered)).collect::<Option<_>>()?;
        let variables = if uses(&arguments, 1) { 2 } else { 1 };
        let result = read_type(result, ordered)?;
        let overload = Overload { is_member: receiver.is_some(), arguments, result, variables };
        all.entry(name.to_owned()).or_default().push(overload);
    }
    Some(all)
}

fn uses(types: &[Type], variable: usize) -> bool {
    types.iter().any(|of| match of {
        Type::Variable(number) => *number == variable,
        Type::Type(of) | Type::List(of) | Type::Optional(of) => uses(std::slice::from_ref(&**of), variable),
        Type::Map(key, value) => [key, value].iter().any(|of| uses(std::slice::from_ref(&***of), variable)),
        _ => false,
    })
}

/// Parts between commas, but not those inside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < text.len() {
        parts.push(&text[start..]);
    }
    parts
}

fn read_type(text: &str, ordered: &Type) -> Option<Type> {
    if let Some((outer, inside)) = text.split_once('(') {
        let mut inside = split(inside.strip_suffix(')')?).into_iter().map(|text| read_type(text, ordered));
        let first = Box::new(inside.next()??);
        return Some(match outer {
            "list" => Type::List(first),
            "type" => Type::Type(first),
            "optional_type" => Type::Optional(first),
            "map" => Type::Map(first, Box::new(inside.next()??)),
            _ => return None,
        });
    }
    Some(match text {
        "A" => Type::Variable(0),
        "B" => Type::Variable(1),
        "C" => ordered.clone(),
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "dyn" => Type::Dyn,
        name if name.contains('.') => Type::Opaque(name.into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_table_is_read() {
        let index = find("_[_]").unwrap();
        assert_eq!(index[1].arguments[0].to_string(), "map(dyn, dyn)");
        assert_eq!((index[1].result.clone(), index[1].variables), (Type::Variable(1), 2));
        let flatten = &find("flatten").unwrap()[0];
        assert!(flatten.is_member && flatten.arguments == [Type::list(Type::list(Type::Variable(0)))]);
        let get = &find("getQuery").unwrap()[0];
        assert_eq!(
            (get.arguments[0].to_string(), get.result.to_string()),
            ("kubernetes.URL".to_owned(), "map(string, list(string))".to_owned())
        );
        assert_eq!(find("_<_").unwrap().len(), 14);
        assert!(find("optional.none").unwrap()[0].arguments.is_empty() && find("nothing").is_none());
    }
}
