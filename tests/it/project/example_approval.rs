//! examples/orchestration/approval: nothing is deleted unless a person has agreed.

use crate::harness::*;
use serde_json::json;
use std::fs;

#[test]
fn nothing_is_deleted_without_a_yes_to_the_same_file() {
    if !installed(&["python3"]) {
        return;
    }
    for (prompt, answer, is_deleted) in [
        ("May I delete old.log ?", "yes", true),
        ("May I delete old.log ?", "no", false),
        ("May I delete other.log ?", "yes", false),
    ] {
        let world = examples();
        world.write("ws/old.log", "");
        let ask = json!({"prompt": prompt, "input_type": "confirmation"});
        let delete = json!({"file": "old.log"});
        world.model_says([
            call("c1", "ask_human", &ask),
            call("c2", "delete_file", &delete),
            text("done"),
        ]);
        let line =
            format!("delta run {ASKS_SERVER} -a examples/orchestration/approval -w ws -m tidy");
        shell(&world, &line).exits(101);
        fs::write(world.latest().path("interaction/response.txt"), answer).unwrap();
        shell(&world, &line).exits(0);
        assert_eq!(!world.exists("ws/old.log"), is_deleted, "{prompt} {answer}");
        let status = if is_deleted { "SUCCESS" } else { "ERROR" };
        assert_eq!(world.latest().result(2)["status"], status);
    }
    // And none at all was asked.
    let world = examples();
    world.write("ws/old.log", "");
    world.model_says([
        call("c", "delete_file", &json!({"file": "old.log"})),
        text("done"),
    ]);
    let line = format!("delta run {ASKS_SERVER} -a examples/orchestration/approval -w ws -m tidy");
    shell(&world, &line).exits(0);
    assert!(world.exists("ws/old.log"));
}
