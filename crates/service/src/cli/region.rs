//! `farlock region`: list, remove, reset.

use clap::Subcommand;
use farlock::inspect::shown;
use farlock::{SessionError, Token};
use farlock_fabric::shm::{Origin, Region};

use super::Places;
use super::report::{Exit, Failure, print, say, show};

/// List, remove or reset regions.
///
/// A region is a file in memory, in FARLOCK_DIR or else /dev/shm/farlock-UID. What must outlive it,
/// so that fencing tokens never go back, is a small file in FARLOCK_STATE_DIR, or else
/// $XDG_STATE_HOME/farlock, ~/.local/state/farlock or /var/tmp/farlock-UID. Where that is lost,
/// another one, or cannot be written, tokens increase as long as the clock is not set back.
///
/// Exit status: 0; 1 if there is no region of that name to remove; 64 for wrong usage, 69 if a
/// region cannot be used, 71 if standard output cannot be written.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the regions there are.
    List,
    /// Remove a region. Whoever holds or awaits a lock in it is told that it is lost; tokens of
    /// the next region of this name continue above those of this one.
    Remove {
        /// The region's name.
        name: String,
    },
    /// Remove a region and create it anew, empty.
    Reset {
        /// The region's name.
        name: String,
    },
}

pub(super) fn run(args: &Args, places: &Places) -> Result<Exit, Failure> {
    let open = |error| Failure::from(SessionError::Open(error));
    match &args.action {
        Action::List => {
            let names = Region::list(&places.options.dir).map_err(open)?;
            print(&names.iter().map(|name| format!("{}\n", shown(name))).collect::<String>())?;
        }
        Action::Remove { name } => {
            if !Region::remove(&places.options.dir, name).map_err(open)? {
                let dir = places.options.dir.display();
                say(format_args!("farlock: there is no region '{}' in {dir}", shown(name)));
                return Ok(Exit::CONFLICT);
            }
        }
        Action::Reset { name } => {
            let options = places.options.clone().named(name);
            let region = Region::reset(&options.to_shm()).map_err(open)?;
            let Origin { incarnation, first_count } = region.origin();
            let first = Token::new(incarnation, first_count);
            show(format_args!("region '{}' is new, its tokens begin at {first}", shown(name)));
        }
    }
    Ok(Exit::OK)
}
