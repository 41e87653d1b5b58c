//! Values and errors of expressions.

use pgbench::random::Prng;
use pgbench::run::{Protocol, Startup};
use pgbench::script::Scripts;

use super::wording::assert_texts_equivalent;
use super::{Pgbench, words};

#[test]
fn expressions_have_the_same_values_and_errors() {
    let Some(pgbench) = Pgbench::find("expressions") else { return };
    let list: Vec<_> =
        "1¦2¦0¦-3¦2.5¦0.0¦1e30¦:i¦:d¦:t¦:n¦:bad¦:big¦:undefined¦true¦null¦9223372036854775807¦int(¦\
        double(¦sqrt(¦greatest(1,¦mod(7,¦pow(2,¦ln(¦random(1,¦debug(¦hash(1,¦permute(5,¦(¦(¦)¦)¦ + ¦\
        \x20- ¦ * ¦ / ¦ % ¦ | ¦ # ¦ & ¦ << ¦ >> ¦ < ¦ > ¦ <= ¦ >= ¦ = ¦ <> ¦ and ¦ or ¦not ¦~¦-¦\
        \x20is null¦ is not true¦case when ¦ then ¦ else ¦ end"
            .split('¦')
            .collect();
    let definitions = ["i=+3", "d=-2.50", "t=tr", "n=Null", "bad=1x", "big=9223372036854775808"];
    let pairs: Vec<_> = definitions.iter().map(|d| d.split_once('=').unwrap()).collect();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut prng = Prng::new(17);
    let (mut evaluated, mut aborted) = (0, 0);
    while evaluated + aborted < 300 {
        let text = format!("\\set x debug({})", words(&mut prng, &list, 7));
        let mut scripts = Scripts::default();
        if scripts.add("s", text.as_bytes(), 1).is_err() {
            continue;
        }
        let mut client = Startup::new(&mut scripts.names, &pairs, 1, 5, 1, 1).unwrap().client(0);
        client.begin(0);
        let mut ours = String::new();
        let step =
            client.step(&scripts, Protocol::Simple, &mut |line| ours.extend([line.to_string(), "\n".into()]));
        if let Err(abort) = &step {
            ours.extend(abort.messages.iter().map(|message| format!("pgbench: error: {message}\n")));
            ours += "pgbench: error: Run was aborted; the above results are incomplete.\n";
        }
        *if step.is_ok() { &mut evaluated } else { &mut aborted } += 1;
        let path = pgbench.script("expression.sql", &text);
        let mut arguments = vec!["-t", "1", "--random-seed=5", "-f", &path];
        arguments.extend(definitions.iter().flat_map(|definition| ["-D", definition]));
        let real = pgbench.errors(&arguments).replace("pgbench: setting random seed to 5\n", "");
        assert_texts_equivalent(&ours, &real, &text);
    }
    assert!(evaluated > 60 && aborted > 60, "{evaluated} {aborted}");
}
