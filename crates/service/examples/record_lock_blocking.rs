//! A lock with a fencing token, for a program that blocks.
//!
//! Two threads deposit into an account that checks tokens, as a storage service should: it refuses
//! a deposit with a token below the highest it has seen.
//!
//! Run it with `cargo run --package farlock --example record_lock_blocking`.

use std::error::Error;
use std::sync::Mutex;
use std::time::Duration;

use farlock::{AcquireError, RegionOptions, Session, Token};

/// What the lock protects.
#[derive(Default)]
struct Account {
    balance: u64,
    highest: Option<Token>,
}

impl Account {
    fn deposit(&mut self, amount: u64, token: Token) -> Result<(), &'static str> {
        if self.highest > Some(token) {
            return Err("a later holder was here already");
        }
        self.highest = Some(token);
        self.balance += amount;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("farlock-example-{}", std::process::id()));
    let result = run(&RegionOptions::new(dir.join("regions"), dir.join("state")));
    std::fs::remove_dir_all(dir)?;
    result
}

fn run(options: &RegionOptions) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(options.dir.parent().ok_or("the directory has a parent")?)?;
    let session = Session::open(options)?;
    let account = Mutex::new(Account::default());

    std::thread::scope(|scope| {
        let depositors: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| -> Result<(), Box<dyn Error + Send + Sync>> {
                    for _ in 0..1000 {
                        let guard = session.lock("account/7").exclusive().blocking()?;
                        account.lock().map_err(|_| "poisoned")?.deposit(1, guard.token())?;
                        guard.release().blocking()?;
                    }
                    Ok(())
                })
            })
            .collect();
        depositors.into_iter().try_for_each(|depositor| match depositor.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("a depositor panicked".to_owned()),
        })
    })?;
    let account = account.into_inner()?;
    println!("balance {}, last token {:?}", account.balance, account.highest);
    assert_eq!(account.balance, 2000);

    // Another session has the lock: no grant at once, and none within 50 ms.
    let other = Session::open(options)?;
    let _guard = session.lock("account/7").exclusive().blocking()?;
    let refused = other.lock("account/7").exclusive().at_once().blocking();
    assert!(matches!(refused, Err(AcquireError::Busy { .. })));
    let limit = Duration::from_millis(50);
    if let Err(error) = other.lock("account/7").shared().within(limit).blocking() {
        println!("refused: {error}");
        println!("   hint: {}", error.hint());
    }
    Ok(())
}
