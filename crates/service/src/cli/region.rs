//! `farlock region`: list, remove, reset.

use clap::Subcommand;
use farlock::text::{shown, shown_whole};
use farlock::{ConnectError, Life, LockView, Observer, Participant, SessionError};

use super::places::{Here, Places};
use super::report::{Exit, Failure, print, print_done};

/// List, remove or reset regions.
///
/// A region is a file in memory, in FARLOCK_DIR or else /dev/shm/farlock-UID. What must outlive it,
/// so that fencing tokens never go back, is a small file in FARLOCK_STATE_DIR, or else
/// $XDG_STATE_HOME/farlock, ~/.local/state/farlock or /var/tmp/farlock-UID. Where that is lost,
/// another one, or cannot be written, tokens increase as long as the clock is not set back.
///
/// Exit status: 0; 1 if there is no region of that name, or one that is in use; 64 for
/// wrong usage, 69 if a region cannot be used, 71 if standard output cannot be written.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    here: Here,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the regions there are.
    #[command(visible_alias = "ls")]
    List,
    /// Remove a region that nobody holds a lock in. Tokens of the next region of this name continue
    /// above those of this one.
    Remove(Doomed),
    /// Remove a region that nobody holds a lock in, and create it anew, empty.
    Reset(Doomed),
}

/// The region that is to be removed.
#[derive(Debug, clap::Args)]
struct Doomed {
    /// The region's name.
    name: String,
    /// Also if locks are held or awaited in it: their holders and waiters are told that they are
    /// lost.
    #[arg(short, long)]
    force: bool,
}

impl Doomed {
    /// Refuses if a living holder or waiter would lose a lock. A region that cannot be looked at
    /// protects nobody any more.
    fn check(&self, places: &Places) -> Result<(), Failure> {
        let options = places.options.clone().named(&self.name);
        let locks = match Observer::open(&options) {
            Ok(observer) if !self.force => observer.locks().unwrap_or_default(),
            Err(error @ SessionError::Connect(ConnectError::Name { .. })) => {
                return Err(error.into());
            }
            _ => return Ok(()),
        };
        let is_living = |p: &&Participant| p.life != Life::Dead;
        let at = |lock: LockView| Some((lock.participants.iter().find(is_living)?.clone(), lock));
        let Some((participant, lock)) = locks.into_iter().find_map(at) else { return Ok(()) };
        let (lock, region) = (shown(&lock.name), shown(&self.name));
        Err(Failure::in_use(
            format_args!("the region '{region}' is in use: at its lock '{lock}' is {participant}"),
            "wait until `farlock ls` lists nobody, or say --force: they are told that they lost it",
        ))
    }

    /// There is no such region.
    fn absent(&self, places: &Places) -> Failure {
        let (name, dir) = (shown(&self.name), places.options.dir.display());
        Failure::absent(format_args!("there is no region '{name}' in {dir}"))
    }
}

pub(super) fn run(args: &Args, places: &Places) -> Result<Exit, Failure> {
    args.here.check()?;
    let open = |error| Failure::from(SessionError::Connect(error));
    match &args.action {
        Action::List => {
            let names = places.options.region_names().map_err(open)?;
            print(
                &names.iter().map(|name| format!("{}\n", shown_whole(name))).collect::<String>(),
            )?;
        }
        Action::Remove(doomed) => {
            doomed.check(places)?;
            let options = places.options.clone().named(&doomed.name);
            if !options.remove_region().map_err(open)? {
                return Err(doomed.absent(places));
            }
        }
        Action::Reset(doomed) => {
            doomed.check(places)?;
            let name = &doomed.name;
            if !places.options.region_names().map_err(open)?.contains(name) {
                return Err(doomed.absent(places));
            }
            let first = places.options.clone().named(name).reset_region().map_err(open)?;
            let name = shown(name);
            print_done(format_args!("region '{name}' is new, its tokens begin at {first}"))?;
        }
    }
    Ok(Exit::OK)
}
