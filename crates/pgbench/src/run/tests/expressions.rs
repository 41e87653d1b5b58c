//! A script with many expressions and a known seed: the values expected by PostgreSQL's tests of pgbench.

use super::*;

#[test]
fn a_seeded_script_has_pgbenchs_values() {
    let text = "\
\\set i1 debug(random(10, 19))
\\set i2 debug(random_exponential(100, 199, 10.0))
\\set i3 debug(random_gaussian(1000, 1999, 10.0))
\\set ib debug(10 + :scale)
\\set d2 debug(double(1 + 1) * (-75.0 / :foo))
-- a comment is no command
\\set id debug(random_zipfian(1, 9, 1.3))
\\set n0 debug(NULL + NULL * exp(NULL))
\\set v3 -54.21E-2
SELECT :n0, :v3, :i1;
\\set ci debug(:client_id)
\\set rs debug(:random_seed)
\\set min debug(-9223372036854775808)
\\set max debug(-(:min + 1))
\\set size debug(:max - 10)
\\set t debug(permute(:size-1, :size, 5432) = 520382784483822430)
\\set h5 debug(hash(10) = hash(10, :default_seed))
";
    let mut run = Run::new(text, &[("foo", "-10.1")]);
    let steps = run.through(Protocol::Simple).unwrap();
    assert_eq!(steps, [(8, "SELECT NULL, -0.5421, 17;".to_owned())]);
    let expected = [
        "debug(script=0,command=1): int 17",
        "debug(script=0,command=2): int 104",
        "debug(script=0,command=3): int 1498",
        "debug(script=0,command=4): int 11",
        "debug(script=0,command=5): double 14.8514851485149",
        "debug(script=0,command=6): int 3",
        "debug(script=0,command=7): null",
        "debug(script=0,command=10): int 0",
        "debug(script=0,command=11): int 5432",
        "debug(script=0,command=12): int -9223372036854775808",
        "debug(script=0,command=13): int 9223372036854775807",
        "debug(script=0,command=14): int 9223372036854775797",
        "debug(script=0,command=15): boolean true",
        "debug(script=0,command=16): boolean true",
    ];
    assert_eq!(run.shown, expected);
}
