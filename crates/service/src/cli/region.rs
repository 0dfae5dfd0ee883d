//! `farlock region`: list, remove, reset, trim.

use clap::Subcommand;
use farlock::text::{shown, shown_whole};
use farlock::{ConnectError, Life, LockView, Observer, Participant, SessionError, Trimmed};

use super::places::{Here, Places};
use super::report::{Exit, Failure, print, print_done};

/// List, remove, reset or trim regions.
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
    /// Remove a region that nobody uses. Tokens of the next region of this name continue above
    /// those of this one.
    Remove(Doomed),
    /// Remove a region that nobody uses, and create it anew, empty.
    Reset(Doomed),
    /// Give back the memory that tables of ranges have for far positions, where nobody uses them.
    /// All others go on meanwhile, by a server too; tokens of the names go on.
    Trim(Kept),
}

/// The region that is to be removed.
#[derive(Debug, clap::Args)]
struct Doomed {
    /// The region's name.
    name: String,
    /// Also if it is used: holders and waiters there are told that they lost their locks.
    #[arg(short, long)]
    force: bool,
}

/// The region that stays.
#[derive(Debug, clap::Args)]
struct Kept {
    /// The region's name.
    name: String,
}

impl Doomed {
    /// Refuses, and names it, if a living holder or waiter would lose a lock. A newcomer, or a
    /// session that is only attached, is seen when the region is removed.
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

    /// Why it was not removed.
    fn refused(error: ConnectError) -> Failure {
        match error {
            ConnectError::InUse { name, user } => Failure::in_use(
                format_args!("the region '{}' is in use, by {}", shown(&name), shown(&user)),
                "wait until that has ended, or say --force: holders and waiters there are told \
                 that they lost their locks",
            ),
            error => SessionError::Connect(error).into(),
        }
    }
}

/// There is no such region.
fn absent(name: &str, places: &Places) -> Failure {
    let (name, dir) = (shown(name), places.options.dir.display());
    Failure::absent(format_args!("there is no region '{name}' in {dir}"))
}

impl Kept {
    fn trim(&self, places: &Places) -> Result<(), Failure> {
        let trimmed = match places.options.clone().named(&self.name).trim_region() {
            Err(SessionError::Connect(ConnectError::Absent { .. })) => {
                return Err(absent(&self.name, places));
            }
            trimmed => trimmed?,
        };
        let (name, Trimmed { tables, bytes, .. }) = (shown(&self.name), trimmed);
        let tables = if tables == 1 { "1 table".to_owned() } else { format!("{tables} tables") };
        print_done(format_args!(
            "region '{name}': {tables} of ranges that nobody used, {bytes} bytes given back"
        ))
    }
}

pub(super) fn run(args: &Args, places: &Places) -> Result<Exit, Failure> {
    args.here.check()?;
    match &args.action {
        Action::List => {
            let names = places.options.region_names().map_err(Doomed::refused)?;
            print(
                &names.iter().map(|name| format!("{}\n", shown_whole(name))).collect::<String>(),
            )?;
        }
        Action::Remove(doomed) => {
            doomed.check(places)?;
            let options = places.options.clone().named(&doomed.name);
            let removed = match doomed.force {
                true => options.remove_region(),
                false => options.remove_unused_region(),
            };
            if !removed.map_err(Doomed::refused)? {
                return Err(absent(&doomed.name, places));
            }
        }
        Action::Trim(kept) => kept.trim(places)?,
        Action::Reset(doomed) => {
            doomed.check(places)?;
            let name = &doomed.name;
            if !places.options.region_names().map_err(Doomed::refused)?.contains(name) {
                return Err(absent(&doomed.name, places));
            }
            let options = places.options.clone().named(name);
            let first = match doomed.force {
                true => options.reset_region(),
                false => options.reset_unused_region(),
            };
            let first = first.map_err(Doomed::refused)?;
            let name = shown(name);
            print_done(format_args!("region '{name}' is new, its tokens begin at {first}"))?;
        }
    }
    Ok(Exit::OK)
}
