//! Expressions from their text to their value.

#![allow(clippy::unwrap_used)]

use super::meter::EXCEEDED;
use super::program::THREAD;
use super::{Budget, Failure, VALIDATION, compile, context, optional, to_cel_typed};
use serde_json::json;

fn says(text: &str) -> Result<cel::Value, String> {
    says_for(VALIDATION, text)
}

fn says_for(budget: u64, text: &str) -> Result<cel::Value, String> {
    let mut context = context();
    let schema = json!({"properties": {"ratio": {"type": "number"}, "at": {"format": "date-time"}, "day": {"format": "date"},
        "data": {"format": "byte"}, "a-b": {"type": "string"}, "namespace": {"type": "string"}, "list": {"items": {"type": "integer"}}, "none": {}}});
    let object = json!({"ratio": 1, "at": "2024-01-02T03:04:05Z", "day": "2024-01-02", "data": "YWI=", "namespace": "here", "a-b": "x", "list": [3, 1, 2], "map": {"k-1": 1}});
    context.add_variable_from_value("self", to_cel_typed(&schema, &object));
    context.add_variable_from_value("old", optional(None));
    let mut budget = Budget::of(budget);
    let program = compile(text).map_err(|error| error.to_string())?;
    program.evaluate(&context, &mut budget).map_err(|failure| failure.to_string())
}

#[test]
fn the_language_has_what_rules_use() {
    for text in [
        "self.ratio / 2.0 == 0.5",
        "self.at > timestamp('2024-01-01T00:00:00Z') && self.at.getFullYear() == 2024",
        "duration('1\u{b5}s') == duration('1\u{3bc}s') && duration('.5h') == duration('30m') && int(duration('1us')) == 1000",
        "timestamp('2024-01-01T1:00:00,5+01:00') == timestamp('2024-01-01T00:00:00.5Z') && timestamp(0).getFullYear() == 1970",
        "duration('9007199254740993ns') != duration('9007199254740992ns') && string(duration('1h30m')) == '5400s'",
        "sign(quantity('-1')) == -1 && quantity('-1').sign() == -1",
        "string(ip('10.0.0.1')) == '10.0.0.1' && string(cidr('10.0.0.1/8')) == '10.0.0.1/8' && string(1) == '1'",
        "type(ip('10.0.0.1')) == net.IP && type(cidr('10.0.0.1/8')) == net.CIDR && type(ip('::1')) != net.CIDR",
        "[optional.of(1), optional.none()].unwrapOpt() == [1] && optional.unwrap([optional.of('a')]) == ['a']",
        "[duration('1s'), duration('1m')].sum() == duration('61s') && [1u, 2u].sum() == 3u && [0.5, 1.0].sum() == 1.5",
        "isURL('/a') && !isURL('a') && url('https://me:secret@a.b:80/c').getHost() == 'a.b:80'",
        "isIP('::1') && !isIP('::ffff:1.2.3.4') && isCIDR('::/0') && !isCIDR('::ffff:1.2.3.4/120')",
        "self.a__dash__b == 'x' && self.map['k-1'] == 1",
        "self.data == b'ab'",
        "self.day < self.at && self.namespace == 'here' && self.__namespace__ == 'here'",
        "!old.hasValue() && old.orValue(3) == 3",
        "self.list.all(x, x > 0) && self.list.exists_one(x, x == 2) && !has(self.none)",
        "self.list.sum() == 6 && self.list.min() == 1 && self.list.max() == 3 && !self.list.isSorted()",
        "self.list.indexOf(2) == 2 && [1, 1].lastIndexOf(1) == 1 && 'abc'.indexOf('c') == 2",
        "self.list.sort().isSorted() && [].sum() == 0",
        "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
        "'abc123'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']",
        "'A-b'.lowerAscii() == 'a-b' && 'a,b'.split(',').join('-') == 'a-b' && ' a '.trim() == 'a'",
        "quantity('1Gi').isGreaterThan(quantity('500Mi')) && quantity('1024Mi') == quantity('1Gi')",
        "quantity('1').compareTo(quantity('2')) == -1 && isQuantity('1k') && !isQuantity('x')",
        "quantity('2k').asInteger() == 2000 && quantity('1').add(1).sub(quantity('500m')).asApproximateFloat() == 1.5",
        "isIP('10.0.0.1') && !isIP('10.0.0.01') && ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()",
        "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').prefixLength() == 8",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
        "isURL('https://a.example:1/x') && url('https://a.example:1/x').getHostname() == 'a.example' && !isURL('a b')",
        "url('https://a.example:1/x').getScheme() == 'https' && url('https://a.example:1/x').getPort() == '1'",
        "self.list.map(x, x * 2) == [6, 2, 4] && {'a': 1}.exists(k, k == 'a')",
        "url('https://a').getEscapedPath() == '' && isURL('mailto:a@b') && isURL('/ä') && !isURL('https://a:b')",
        "url('https://a/?x=1&y=a%20b&x=2').getQuery() == {'x': ['1', '2'], 'y': ['a b']} && url('/a').getQuery() == {}",
        "self.list.first().value() == 3 && self.list.last().value() == 2 && ![].first().hasValue()",
        "!format.dns1123Label().validate('web-1').hasValue() && format.named('dns1123Label').hasValue()",
        "format.dns1035Label().validate('1').value()[0].contains('DNS-1035') && !format.named('x').hasValue()",
        "format.named('uuid').value().validate('x').orValue([]) == ['does not match the UUID format']",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3-rc.1').patch() == 3",
        "semver('1.2.3').isGreaterThan(semver('1.2.3-rc.1')) && semver('1.2.3').compareTo(semver('1.10.0')) == -1",
        "isSemver('1.2.3') && !isSemver('v1.2') && isSemver('v1.2', true) && semver('v1', true) == semver('1.0.0')",
        "quantity('2').isLessThan(quantity('3')) && semver('1.0.0').isLessThan(semver('1.0.1'))",
    ] {
        assert_eq!(says(text), Ok(cel::Value::Bool(true)), "{text}");
    }
    assert_eq!(says("self.nothing"), Err("no such key: nothing".into()));
    assert_eq!(says("1 / 0"), Err("division by zero".into()));
    for (text, why) in [
        ("duration('1h' + ' 30m')", "a unit that is not h, m, s, ms, us or ns"),
        ("timestamp('2024-01-01T00:00:6' + '0Z')", "a second that does not exist"),
        ("'a'.matches('a*' + '*')", "* repeats a repetition"),
        ("'a'.find('(?x)' + 'a')", "(?x begins no group"),
        ("ip.isCanonical('a')", "parse error"),
        ("ip('::ffff:1.2.3.4')", "is not allowed"),
        ("url('a').getHost()", "invalid URI for request"),
        ("duration(dyn(5))", "not a duration"),
        ("int(timestamp('9999-01-01T00:00:00Z') - timestamp('0001-01-01T00:00:00Z'))", "overflow"),
    ] {
        let said = says(text).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
    assert!(says("self.list.sum() >").unwrap_err().starts_with("ERROR: <input>:1:"));
}

#[test]
fn hostile_expressions_end() {
    let text = "a".repeat(500);
    for hostile in [
        "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))".to_owned(),
        // Errors that operators absorb.
        "lists.range(1000).exists(a, lists.range(1000).exists(b, lists.range(1000).exists(c, c / 0 == 1)))".to_owned(),
        "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + c >= 0))) || true".to_owned(),
        "lists.range(1000).exists_one(a, lists.range(1000).exists_one(b, lists.range(1000).exists_one(c, c < 0)))".to_owned(),
        // Values that grow.
        "lists.range(100000).map(a, lists.range(100000)).size() > 0".to_owned(),
        "lists.range(1000).filter(a, [lists.range(1000), lists.range(1000), lists.range(1000)] != []).size() > 0".to_owned(),
        format!("'{text}'{}.size() > 0", ".replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')".repeat(8)),
        format!("lists.range(10000).map(a, '{text}').join('{text}').split('') == []"),
        "lists.range(100000).map(a, {'a': lists.range(100)}).size() > 0".to_owned(),
        "lists.range(1000).map(a, self.?list.orValue([])).map(b, lists.range(1000)).size() > 0".to_owned(),
        // Functions that compare everything with everything.
        "lists.range(100000).distinct() == []".to_owned(),
        "sets.contains(lists.range(100000), lists.range(100000))".to_owned(),
        "lists.range(1000).all(a, lists.range(1000) == lists.range(1000))".to_owned(),
        "lists.range(1000).all(a, 999 in lists.range(1000))".to_owned(),
        // Patterns that have to be compiled.
        "lists.range(1000).exists(x, 'a'.matches('(a' + string(x) + '){200}'))".to_owned(),
        "lists.range(1000).map(x, 'a'.find('(b' + string(x) + '){200}')).size() == 0".to_owned(),
        "lists.range(1000).sortBy(x, lists.range(1000).sortBy(y, lists.range(1000).size())[0]) == []".to_owned(),
    ] {
        let begun = std::time::Instant::now();
        // A part of the budget, so that the test takes a part of the time.
        assert_eq!(says_for(100_000, &hostile), Err(Failure::Budget.to_string()), "{hostile}");
        assert!(begun.elapsed().as_secs() < 120, "{:?}: {hostile}", begun.elapsed());
    }
    assert_eq!(says("true || lists.range(100000).distinct() == []"), Ok(cel::Value::Bool(true)));
    assert_eq!(says("lists.range(100000).distinct() == []"), Err(EXCEEDED.to_owned()));
}

/// What is not too deep to be parsed is not too deep for the stack of a thread that serves requests.
#[test]
fn the_deepest_expressions_fit_the_stack() {
    let nested = |open: &str, middle: &str, close: &str, times: usize| {
        format!("{}{middle}{}", open.repeat(times), close.repeat(times))
    };
    let mut evaluated = 0;
    for times in [20, 40, 60, 80, 120, 240] {
        for text in [
            format!("1{} > 0", " + 1".repeat(times)),
            nested("[", "1", "]", times) + " != []",
            nested("(1 + ", "1", ")", times) + " > 0",
            nested("{'a': ", "1", "}", times) + " != {}",
            nested("[1].map(x, ", "1", ")", times) + " != []",
            nested("[1].exists(x, ", "true", ")", times),
            nested("dyn(", "1", ")", times) + " == 1",
            format!("{}true", "false ? false : ".repeat(times)),
        ] {
            evaluated += usize::from(says(&text) == Ok(cel::Value::Bool(true)));
        }
    }
    assert!(evaluated > 20, "{evaluated}");
}

/// A rule about every item of a list would start a thread for each of them.
#[test]
fn deep_expressions_pay_for_their_thread() {
    let program = compile(&format!("{}true", "false ? false : ".repeat(60))).unwrap();
    let (context, mut budget) = (context(), Budget::of(20 * THREAD));
    let evaluated = (0..100).take_while(|_| program.evaluate(&context, &mut budget).is_ok()).count();
    assert!((1..=20).contains(&evaluated), "{evaluated}");
    assert!(budget.is_spent());
}

/// Names that functions are called by are names of values, too.
#[test]
fn what_is_measured_says_the_same() {
    for text in [
        "['a'].all(ip, ip.matches('^a$') && ip.startsWith('a')) && ip.isCanonical('10.0.0.1')",
        "['a'].all(math, math.size() == 1) && math.abs(-1) == 1 && math.least(1, 2, 3) == 1",
        "matches('abc', 'b+') && !'abc'.matches('^b')",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1] && strings.quote('a') == '\"a\"' && base64.encode(b'a') == 'YQ=='",
        "optional.of(1).hasValue() && optional.none().orValue(2) == 2 && self.?a__dash__b.orValue('') == 'x'",
        "{'a': [1, {'b': 2}]}.a[1].b == 2 && has({'a': 1}.a) && !has(self.map.nothing)",
        "[1, 2, 3].filter(x, x > 1).map(y, y > 2, y * 2) == [6] && [[1], [2]].flatten() == [1, 2]",
        "'%s is %d'.format(['a', 1]) == 'a is 1' && 'abc'.replace('b', 'xx', 1) == 'axxc' && 'a,b'.split(',', 1) == ['a,b']",
        "dyn(1) == 1 && type(self.list) == list && size(self.list) == 3 && 'ü'.size() == 1 && (true ? 1 : 2) == 1",
        "[1, 1].exists_one(x, x == 2) == false && {'a': 1, 'b': 2}.all(k, k < 'c') && 'a' in {'a': 1} && !(4 in self.list)",
    ] {
        assert_eq!(says(text), Ok(cel::Value::Bool(true)), "{text}");
    }
    assert!(says("'a'.matches('[')").unwrap_err().contains("Illegal regex"));
}

#[test]
fn loops_have_an_index_or_a_key_beside_the_value() {
    for text in [
        "self.list.all(i, v, i < 3 && v > 0) && !self.list.all(i, v, v > 1) && {'a': 1}.all(k, v, k == 'a' && v == 1)",
        "self.list.exists(i, v, i == 2 && v == 2) && !{'a': 1}.exists(k, v, k == 'a' && v == 2)",
        "self.list.existsOne(i, v, v > 2) && !self.list.exists_one(i, v, v > 1) && {'a': 1, 'b': 2}.existsOne(k, v, v == 2)",
        "self.list.transformList(i, v, i * v) == [0, 1, 4] && self.list.transformList(i, v, v > 1, v - i) == [3, 0]",
        "{'a': 1}.transformList(k, v, k + string(v)) == ['a1'] && [].transformList(i, v, v) == []",
        "{'a': 1, 'b': 2}.transformMap(k, v, v * 2) == {'a': 2, 'b': 4} && {'a': 1, 'b': 2}.transformMap(k, v, v > 1, k) == {'b': 'b'}",
        "['x', 'y'].transformMap(i, v, v) == {0: 'x', 1: 'y'} && {}.transformMap(k, v, v) == {}",
        "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'} && [1, 2].transformMapEntry(i, v, v > 1, {v: i}) == {2: 1}",
        // Variables inside of loops inside, some of the same name.
        "[[1, 2], [3]].transformList(i, v, v.transformList(j, w, i * 10 + w)) == [[1, 2], [13]]",
        "[[1, 2], [3]].transformList(i, v, v.map(v, v + i)) == [[1, 2], [4]]",
        "[1].all(i, v, [5].all(i, w, i == 0 && w == 5 && v == 1))",
        "self.map.all(k, v, [k].exists(x, x == k && self.map[x] == v)) && {'v': {'a': 1}}.all(k, v, v.a == 1 && has(v.a))",
        // Errors that a later turn absorbs.
        "self.list.exists(i, v, 1 / i == 1)",
    ] {
        assert_eq!(says(text), Ok(cel::Value::Bool(true)), "{text}");
    }
    let twice = says("{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k})").unwrap_err();
    assert!(twice.contains("key 1 already exists"), "{twice}");
    assert!(says("[1].all(i, i, true)").unwrap_err().contains("duplicate variable name: i"));
    assert!(says("[1].all(i, 1, true)").unwrap_err().contains("argument must be a simple name"));
    assert!(says("1.all(i, v, true)").is_err());
    for hostile in [
        "lists.range(1000).all(a, b, lists.range(1000).all(c, d, lists.range(1000).all(e, f, e >= 0)))",
        "lists.range(1000).transformMap(a, b, lists.range(1000).transformMap(c, d, lists.range(1000))).size() > 0",
    ] {
        assert_eq!(says_for(100_000, hostile), Err(Failure::Budget.to_string()), "{hostile}");
    }
}
