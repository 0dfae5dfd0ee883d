//! What the command line prints, word for word. `TRYCMD=overwrite` accepts a new wording.

use crate::stage::Stage;

#[test]
fn the_command_line_says_what_it_said() {
    let stage = Stage::new();
    trycmd::TestCases::new()
        .env("FARLOCK_DIR", stage.dir().to_str().unwrap())
        .env("FARLOCK_STATE_DIR", stage.state_dir().to_str().unwrap())
        .case("tests/transcripts/*.trycmd")
        .run();
}
