//! What is accepted, what it means, and what is refused.

#![allow(clippy::unwrap_used)]

use super::{SyntaxError, translated};
use crate::patterns;

#[test]
fn what_go_accepts_is_accepted() {
    for (pattern, fits, fails) in [
        (r"^{.*}$", "{a}", "a"),
        (r"^a{1,2}{$", "aa{", "a"),
        (r"^a{,2}b{01}$", "a{,2}b{01}", "aab"),
        (r"^[\w-.]+$", "a-.", "a,"),
        (r"^[^[]+$", "a]", "["),
        (r"^[[:alpha:][]+\p{Greek}$", "a[α", "1α"),
        (r"^[][]+$", "[]", "a"),
        (r"^\w{1,63}$", "aZ_9", "é"),
        (r"^[\d\\]+$", r"1\", "٣"),
        (r"^\S[\W]$", "é.", "éa"),
        (r"^[\W-]$", "-", "a"),
        (r"^\Qa.b\E+$", "a.bb", "axb"),
        (r"^\Q[x", "[x", "x"),
        (r"^\141\x41\07?$", "aA", "a"),
        (r"^[\141-\143\0]$", "b", "d"),
        (r"^[a-z&&b]$", "c", "A"),
        (r"^[&&]$", "&", "a"),
        (r"^[a-z--b]$", "A", "~"),
        (r"^[\w--/]+$", "a./", "+"),
        (r"^[a~~b]$", "~", "c"),
        (r"^[-a]$", "-", "b"),
        (r"^[a-]$", "-", "b"),
        (r"^[^-a]$", "b", "-"),
        (r"^[a^]$", "^", "b"),
        (r"^\pN\PN\p{^L}\P{^Lu}$", "1a.B", "1a.b"),
        (r"^\p{greek}\p{Old-Italic}?\p{Decimal_Number}$", "α1", "a1"),
        (r"^(?P<a>x)(?<a>y)$", "xy", "x"),
        (r"^(?i-s:A.)b$", "axb", "axB"),
        (r"^(?i)a(?-i)b()(?:)$", "Ab", "AB"),
        (r"^(?ii:a)(?:b|c|)+$", "Abc", "d"),
        (r"^(?s-s:.)(?s:.)$", "a\n", "\na"),
        (r"^xa+(?i)?b\Q\E*(?:c)(?U)+$", "xBBc", "b"),
        (r"(?m)^b$", "a\nb\nc", "ab"),
        (r"^a$", "a", "a\n"),
        (r"^(?U)(a+?)(?:b{2,}?)*$", "abb", "ab"),
        (r"\bé", "aé", "é"),
        (r"é\B", "é", "éa"),
        (r"^\<\_\-\>\.$", "<_->.", "a"),
        (r"^\a?\f?\v?\n\r\t$", "\n\r\t", "n"),
        (r"^[[.]+$", "[.", "a"),
        (r"^[\x{D800}-\x{E000}a]$", "\u{e000}", "b"),
        (r"^(?:a|[^\x00-\x{10FFFF}]|\x{D800}|[\x{D800}])$", "a", "b"),
        (r"^(a{10}){100}?$", &"a".repeat(1000), "a"),
        (r"^(((a?){2,}){3}|b{0}){2}$", "", "b"),
        ("^\\\n#x y$", "\n#x y", "xy"),
    ] {
        let compiled = patterns::bounded(pattern);
        let regex = compiled.unwrap_or_else(|why| panic!("{pattern}: {why}")).regex;
        assert!(regex.is_match(fits), "{pattern} {fits} {regex}");
        assert!(!regex.is_match(fails), "{pattern} {fails} {regex}");
    }
}

#[test]
fn what_go_refuses_is_refused() {
    let (escape, set, group) = (SyntaxError::Escape, SyntaxError::Set, SyntaxError::Group);
    let (twice, nothing, count) = (SyntaxError::Twice, SyntaxError::Nothing, SyntaxError::Count);
    for (pattern, why) in [
        ("(", SyntaxError::Unclosed),
        ("(a|(b)", SyntaxError::Unclosed),
        (")", SyntaxError::Unopened),
        ("a)b", SyntaxError::Unopened),
        ("[", SyntaxError::Bracket),
        ("[]", SyntaxError::Bracket),
        ("[^]", SyntaxError::Bracket),
        ("[a-", SyntaxError::Bracket),
        ("[[:alpha:", SyntaxError::Bracket),
        ("[[:alpha:]", SyntaxError::Bracket),
        ("[[:letter:]]", set("[:letter:]".to_owned())),
        ("[b-a]", SyntaxError::Range("b-a".to_owned())),
        (r"[a-\d]", escape(r"\d".to_owned())),
        ("\\", SyntaxError::Backslash),
        ("[\\", SyntaxError::Backslash),
        (r"\p", set(r"\p".to_owned())),
        (r"\p{", set(r"\p{".to_owned())),
        (r"\p{Elvish}", set(r"\p{Elvish}".to_owned())),
        (r"\p{Script=Greek}", set(r"\p{Script=Greek}".to_owned())),
        (r"\p{Alphabetic}", set(r"\p{Alphabetic}".to_owned())),
        (r"\pX", set(r"\pX".to_owned())),
        (r"a\1", escape(r"\1".to_owned())),
        (r"[\1]", escape(r"\1".to_owned())),
        (r"\C", escape(r"\C".to_owned())),
        (r"\Z", escape(r"\Z".to_owned())),
        (r"\E", escape(r"\E".to_owned())),
        (r"\é", escape(r"\é".to_owned())),
        (r"[\b]", escape(r"\b".to_owned())),
        (r"\u0041", escape(r"\u".to_owned())),
        (r"\x4", escape(r"\x4".to_owned())),
        (r"\x{}", escape(r"\x{}".to_owned())),
        (r"\x{110000}", escape(r"\x{110000}".to_owned())),
        (r"\b{start}*{1}", twice("{1}".to_owned())),
        ("a**", twice("*".to_owned())),
        ("a*+", twice("+".to_owned())),
        ("a*??", twice("?".to_owned())),
        ("a{2}{3}", twice("{3}".to_owned())),
        ("*a", nothing("*".to_owned())),
        ("(?i)*", nothing("*".to_owned())),
        ("(*a)", nothing("*".to_owned())),
        ("a|+?", nothing("+?".to_owned())),
        ("{2}", nothing("{2}".to_owned())),
        ("a{1001}", count("{1001}".to_owned())),
        ("a{2,1}", count("{2,1}".to_owned())),
        ("a{99999999999999999999}", count("{99999999999999999999}".to_owned())),
        ("(a{100}){11}", count("{11}".to_owned())),
        ("((a{2,}){501}){1}", count("{501}".to_owned())),
        ("(?x)a", group("(?x".to_owned())),
        ("(?u)a", group("(?u".to_owned())),
        ("(?i-)a", group("(?i-)".to_owned())),
        ("(?i--s)a", group("(?i--".to_owned())),
        ("(?=a)", group("(?=".to_owned())),
        ("(?!a)[[]", group("(?!".to_owned())),
        ("(?<=a)", group("(?<".to_owned())),
        ("(?#a)", group("(?#".to_owned())),
        ("(?P<>a)", group("(?P<>".to_owned())),
        ("(?P<a-b>a)", group("(?P<a-b>".to_owned())),
        ("(?P=a)", group("(?P".to_owned())),
        ("(?", group("(?".to_owned())),
        (&"(".repeat(1001), SyntaxError::Deep),
        (&format!("({}){{1000}}", "ab".repeat(1700)), SyntaxError::Large),
    ] {
        assert_eq!(translated(pattern), Err(why), "{pattern}");
        assert!(patterns::bounded(pattern).is_err(), "{pattern}");
    }
}
