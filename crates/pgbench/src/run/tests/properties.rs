use proptest::prelude::*;

use super::*;

fn command() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\\\(if|elif) [01]\n",
        "\\\\(else|endif|startpipeline|syncpipeline|endpipeline)\n",
        "\\\\set [a-c] (:[a-d] [-+*/%] )?(:[a-d]|[0-9]|2\\.5|null|random\\(1, [0-9]\\))\n",
        "\\\\sleep (:[a-d]|[0-9]) ?(us|ms|s)\n",
        "\\\\(shell|setshell a) (:|::)?[a-d]\n",
        "select :[a-d];",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_script_ends_after_at_most_one_step_per_command(
        commands in prop::collection::vec(command(), 1..12), protocol in 0..2_u8
    ) {
        let mut scripts = Scripts::default();
        if scripts.add("s", commands.concat().as_bytes(), 1).is_err() {
            return Ok(());
        }
        let protocol = if protocol == 0 { Protocol::Simple } else { Protocol::Extended };
        let mut client = Startup::new(&mut scripts.names, &[], 1, 1, 1, 1).unwrap().client(0);
        client.begin(0);
        let mut before = None;
        for _ in 0..=commands.len() {
            match client.step(&scripts, protocol, &mut |_| {}) {
                Ok(Step::End) => return Ok(()),
                Ok(_) => {
                    prop_assert!(Some(client.command()) > before, "back to {}", client.command());
                    before = Some(client.command());
                }
                Err(abort) => {
                    prop_assert!(!abort.messages.is_empty());
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "no end");
    }
}
