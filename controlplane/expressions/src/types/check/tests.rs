#![allow(clippy::unwrap_used)]
use super::*;
use crate::compile;
use crate::types::schema;

fn checked(text: &str) -> Result<String, String> {
    let deployment = schema::of_kind("io.k8s.api.apps.v1.Deployment", "Deployment", None).unwrap();
    let variables = Type::object("variables", [("limit".to_owned(), Type::Int)]);
    let scope = [("object", deployment), ("variables", variables), ("params", Type::Dyn)];
    match check(&compile(text).unwrap(), &scope) {
        Ok(found) => Ok(found.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn what_fits_has_a_type() {
    for (text, want) in [
        ("object.spec.replicas > 1 && has(object.metadata.labels)", "bool"),
        ("object.spec.template.spec.containers.all(c, c.image.startsWith('x'))", "bool"),
        ("object.spec.template.spec.containers.map(c, c.name)", "list(string)"),
        ("object.spec.template.spec.containers.filter(c, has(c.resources)).size()", "int"),
        ("object.metadata.labels['a'] + object.metadata.annotations.b", "string"),
        ("object.metadata.labels.exists(k, k == 'a')", "bool"),
        ("variables.limit + 1", "int"),
        ("object.metadata.labels.transformMap(k, v, v.size())", "map(string, int)"),
        ("object.metadata.labels.transformMapEntry(k, v, {v: k})", "map(string, string)"),
        ("object.spec.template.spec.containers.transformList(i, c, i < 2, c.name)", "list(string)"),
        ("object.spec.template.spec.containers.all(i, c, i > 0 || c.image != '')", "bool"),
        ("semver('1.0.0').isLessThan(semver('v2', true)) && isSemver('1')", "bool"),
        ("format.dns1123Label().validate(object.metadata.name).hasValue()", "bool"),
        ("url('/a').getQuery()['x'].first().orValue('')", "string"),
        ("params.any.thing == 1 || params.other == 'x'", "bool"),
        ("params.a", "dyn"),
        ("'%d %s %s'.format([1, 'a', params.a])", "string"),
        ("[[1], []]", "list(list(int))"),
        ("type(ip('10.0.0.1')) == net.IP", "bool"),
        ("params.a ? params.b : true", "dyn"),
        ("true ? 'a' : params.b", "dyn"),
        ("params.a + params.b", "dyn"),
        ("params.a + 'b'", "string"),
        ("params.a.map(x, x + 1)", "list(int)"),
        ("[params.a, params.b]", "list(dyn)"),
        ("[[], [1]] + [params.a]", "list(dyn)"),
        ("int('-5') + int('+5') + int(uint('5'))", "int"),
        ("double('1.5') + double('-Inf') + double('0x1p-2') + double('nan')", "double"),
        ("{'a': params.a, 'b': dyn(1)}", "map(string, dyn)"),
        ("bool('True')", "bool"),
        ("type(1)", "type(int)"),
        ("object.metadata.namespace + object.metadata.__namespace__", "string"),
        ("[1, 2].max() + [1].sum() + sign(quantity('1'))", "int"),
        ("object.spec.template.spec.containers.sortBy(c, c.name).size()", "int"),
        ("object.?spec.?replicas.optMap(n, n + 1).orValue(1)", "int"),
        ("true ? [] : [1]", "list(int)"),
        ("object.?spec.?replicas.orValue(1)", "int"),
        ("object.spec.strategy.rollingUpdate.maxSurge == '25%'", "bool"),
        ("object.metadata.creationTimestamp > timestamp('2020-01-01T00:00:00Z')", "bool"),
        ("type(object.spec.replicas) == int && 1 < 2.5", "bool"),
        ("[1, 2].sum() == 3 ? 'a' : 'b'", "string"),
        ("quantity('1Gi').isLessThan(quantity('2Gi')) && ip('10.0.0.1').family() == 4", "bool"),
        ("duration('1h30m').getHours() + timestamp('2020-01-01T00:00:00.5+01:00').getFullYear()", "int"),
        ("object.metadata.name.matches('^[a-z]{1,3}$') || params.a.matches(params.b)", "bool"),
        ("[]", "list(dyn)"),
        ("{'a': 1}", "map(string, int)"),
        ("object.metadata.ownerReferences.exists_one(o, o.kind == 'A')", "bool"),
    ] {
        assert_eq!(checked(text).as_deref(), Ok(want), "{text}");
    }
}

#[test]
fn what_does_not_fit_is_told_with_its_place() {
    for (text, want) in [
        (
            "object.spec.replica > 1",
            "ERROR: <input>:1:12: undefined field 'replica'\n | object.spec.replica > 1\n | ...........^",
        ),
        (
            "object.spec.replicas == '1'",
            "ERROR: <input>:1:22: found no matching overload for '_==_' applied to '(int, string)'\n | object.spec.replicas == '1'\n | .....................^",
        ),
        (
            "object.metadata.name.startsWith(1)",
            "ERROR: <input>:1:32: found no matching overload for 'startsWith' applied to 'string.(int)'\n | object.metadata.name.startsWith(1)\n | ...............................^",
        ),
        (
            "nothing",
            "ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')\n | nothing\n | ^",
        ),
    ] {
        assert_eq!(checked(text), Err(want.to_owned()), "{text}");
    }
    for (text, part) in [
        ("object.spec.replicas && true", "expected type 'bool' but found 'int'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("object.spec.replicas.all(x, true)", "expression of type 'int' cannot be range of a comprehension"),
        ("object.spec.replicas.x", "type 'int' does not support field selection"),
        ("object.metadata.name.foo()", "undeclared reference to 'foo'"),
        ("object.spec.template.spec.containers.all(c, c.nam == 'x')", "undefined field 'nam'"),
        ("variables.other", "undefined field 'other'"),
        ("Object{}", "undeclared reference to 'Object'"),
        ("timestamp('x') > timestamp('2020-01-01T00:00:00Z')", "invalid timestamp argument"),
        ("duration('1h 30m') < duration('1h30m')", "invalid duration argument"),
        ("object.metadata.name.matches('[')", "invalid matches argument"),
        ("jsonpatch.escapeKey('a')", "undeclared reference to 'jsonpatch'"),
        ("[params.a, 1]", "expected type 'dyn' but found 'int'"),
        ("{'a': 1, 'b': params.a}", "expected type 'int' but found 'dyn'"),
        ("{'a': 1, 1: 1}", "expected type 'string' but found 'int'"),
        ("type(params.a) in [int, string]", "expected type 'type(int)' but found 'type(string)'"),
        ("[[1], [params.a]]", "expected type 'list(int)' but found 'list(dyn)'"),
        ("math.greatest(1, 2)", "undeclared reference to 'math'"),
        ("math.abs(1)", "undeclared reference to 'math'"),
        ("base64.encode(b'a')", "undeclared reference to 'base64'"),
        ("'a'.reverse()", "no matching overload for 'reverse' applied to 'string.()'"),
        ("quantity('1').sign()", "no matching overload for 'sign' applied to 'kubernetes.Quantity.()'"),
        ("['a'].sum()", "no matching overload for 'sum' applied to 'list(string).()'"),
        ("[[1]].sort()", "no matching overload for 'sort' applied to 'list(list(int)).()'"),
        ("params.a == duration", "undeclared reference to 'duration'"),
        ("'a'.matches('a**')", "invalid matches argument"),
        ("matches('a', '[') || matches('a', '(?x)')", "invalid matches argument"),
        ("'a'.find('[')", "invalid find argument"),
        ("'a'.findAll('a{1001}', 1)", "invalid findAll argument"),
        ("bool('yes')", "invalid bool argument"),
        ("int('a')", "invalid int argument"),
        ("double('a')", "invalid double argument"),
        ("double('1e999')", "invalid double argument"),
        ("uint('+1')", "invalid uint argument"),
        ("uint(-1)", "invalid uint argument"),
        ("string(null)", "invalid string argument"),
        ("duration(5)", "invalid duration argument"),
        ("timestamp(253402300800) > timestamp('2024-01-01T00:00:60Z')", "invalid timestamp argument"),
    ] {
        let said = checked(text).unwrap_err();
        assert!(said.contains(part), "{text}: {said}");
    }
    let two = checked("object.spec.a == object.spec.b").unwrap_err();
    assert_eq!(two.matches("ERROR").count(), 2, "{two}");
}

#[test]
fn types_and_messages_have_a_largest_size() {
    // Each map has two of the one around it.
    let maps = |depth: usize| {
        let inside = (1..=depth).fold("1".to_owned(), |inside, level| {
            format!("[{{v{level}: v{level}}}].map(v{}, {inside})", level - 1)
        });
        format!("[{{1: 1}}].map(v{depth}, {inside})")
    };
    assert!(checked(&maps(5)).is_ok());
    let said = checked(&maps(25)).unwrap_err();
    assert!(said.contains("the types of the expression are too large"), "{said}");
    // The same with types that are not known yet when they are compared.
    let unknown = |depth: usize| {
        let pairs = (1..=depth).map(|level| format!("[v{}] == [{{v{level}: v{level}}}]", level - 1));
        let all = pairs.collect::<Vec<_>>().join(" && ");
        (0..=depth).fold(all, |inside, level| format!("[].all(v{level}, {inside})"))
    };
    assert_eq!(checked(&unknown(3)).as_deref(), Ok("bool"));
    assert!(checked(&unknown(25)).unwrap_err().contains("too large"));
    // Many calls of functions with many overloads.
    let many = "1 < 2 || ".repeat(5_000) + "true";
    assert_eq!(checked(&many).as_deref(), Ok("bool"));
    let said = checked(&("nothing || ".repeat(5_000) + "true")).unwrap_err();
    assert_eq!(said.matches("ERROR").count(), SHOWN);
    assert!(said.ends_with("\n4900 more errors were truncated") && said.len() < 10_000, "{}", said.len());
}

#[test]
fn values_have_one_of_the_types_that_are_wanted() {
    let said = |text: &str, wanted: &[Type]| {
        check_outcome(&compile(text).unwrap(), &[("object", Type::Dyn)], wanted)
            .map(|of| of.to_string())
            .map_err(|error| error.to_string())
    };
    assert_eq!(said("object.a == 1", &[Type::Bool]).as_deref(), Ok("bool"));
    for (text, wanted, why) in [
        ("'a'", vec![Type::Bool], "must evaluate to bool but got string"),
        ("object.a", vec![Type::Bool], "must evaluate to bool but got dyn"),
        ("null", vec![Type::String], "must evaluate to string but got null_type"),
        ("1", vec![Type::String, Type::Null], "must evaluate to one of [string null_type] but got int"),
    ] {
        assert_eq!(said(text, &wanted), Err(why.to_owned()), "{text}");
    }
}

#[test]
fn patches_are_constructed_of_what_is_there() {
    let said = |text: &str, form: PatchForm| {
        let program = crate::compile_patch(text, form).unwrap();
        check_patch(&program, &[("object", Type::Dyn)], form).err().map(|error| error.to_string())
    };
    for (form, text) in [
        (PatchForm::ApplyConfiguration, "Object{spec: Object.spec{replicas: object.a, ?b: object.?b}}"),
        (PatchForm::ApplyConfiguration, "object.a ? Object{} : Object{a: Object.a{b: 1}.b + 1}"),
        (PatchForm::JsonPatch, "has(object.a) ? [] : [JSONPatch{op: 'add', path: '/a', value: {}}]"),
        (PatchForm::JsonPatch, "object.a.map(k, JSONPatch{op: 'remove', path: jsonpatch.escapeKey(k)})"),
    ] {
        assert_eq!(said(text, form), None, "{text}");
    }
    for (form, text, why) in [
        (PatchForm::ApplyConfiguration, "object", "must evaluate to Object but got dyn"),
        (PatchForm::ApplyConfiguration, "Object{a: 1 == 'a'}", "no matching overload for '_==_'"),
        (PatchForm::JsonPatch, "[]", "must evaluate to list(JSONPatch) but got list(dyn)"),
        (PatchForm::JsonPatch, "[JSONPatch{op: 1}]", "expected type of field 'op' is 'string' but"),
    ] {
        let found = said(text, form).unwrap_or_default();
        assert!(found.contains(why), "{text}: {found}");
    }
}
