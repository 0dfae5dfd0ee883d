//! What a handle and the progress thread share about one acquisition.
//!
//! The handle says whether it still wants the lock; the progress thread says how far it has come.
//! Both under one mutex, so a grant and a withdrawal never miss each other: a lock granted to
//! somebody who let go is released by the progress thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use farlock_locks::{Mode, Token};

use super::Patience;
use crate::error::LostReason;
use crate::{AcquireError, ReleaseError};

/// One acquisition, from its request to its release.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) name: String,
    pub(super) mode: Mode,
    pub(super) patience: Patience,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Whether the handle still wants the lock, or still holds it.
    wanted: bool,
    wakers: Vec<Waker>,
}

#[derive(Clone, Debug)]
enum Stage {
    Asked,
    Refused(AcquireError),
    Held(Token),
    Lost(LostReason),
    Released,
}

impl Ask {
    pub(super) fn new(name: String, mode: Mode, patience: Patience) -> Self {
        let state = State { stage: Stage::Asked, wanted: true, wakers: Vec::new() };
        Self { name, mode, patience, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this mutex.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn become_stage(&self, mut state: MutexGuard<'_, State>, stage: Stage) {
        state.stage = stage;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        // Outside the mutex: a waker may do anything.
        wakers.into_iter().for_each(Waker::wake);
    }

    // The progress thread's side.

    /// Whether the handle still wants the lock.
    pub(super) fn is_wanted(&self) -> bool {
        self.state().wanted
    }

    /// The lock is held. `false` if nobody wants it any more: release it.
    pub(super) fn grant(&self, token: Token) -> bool {
        let state = self.state();
        if !state.wanted {
            return false;
        }
        self.become_stage(state, Stage::Held(token));
        true
    }

    /// The lock will not be had.
    pub(super) fn refuse(&self, error: AcquireError) {
        self.become_stage(self.state(), Stage::Refused(error));
    }

    /// The release has ended, or what was held is lost. Keeps a loss that was announced before.
    pub(super) fn end(&self, result: Result<(), LostReason>) {
        let state = self.state();
        if !matches!(state.stage, Stage::Lost(_)) {
            let stage = result.map_or_else(Stage::Lost, |()| Stage::Released);
            self.become_stage(state, stage);
        }
    }

    /// The session cannot go on.
    pub(super) fn lose(&self, reason: LostReason) {
        let state = self.state();
        let stage = match state.stage {
            Stage::Asked => Stage::Refused(AcquireError::Lost { name: self.name.clone(), reason }),
            Stage::Held(_) => Stage::Lost(reason),
            Stage::Refused(_) | Stage::Lost(_) | Stage::Released => return,
        };
        self.become_stage(state, stage);
    }

    // The handle's side.

    /// The handle lets go: withdraws or releases. The progress thread is to be nudged.
    pub(super) fn let_go(&self) {
        self.state().wanted = false;
    }

    /// Waits until the lock is held or will not be had.
    pub(super) fn wait_granted(&self) -> Result<Token, AcquireError> {
        let state = self.state();
        let asked = |state: &mut State| matches!(state.stage, Stage::Asked);
        let state = self.changed.wait_while(state, asked).unwrap_or_else(PoisonError::into_inner);
        self.granted(&state.stage)
    }

    pub(super) fn poll_granted(&self, cx: &Context<'_>) -> Poll<Result<Token, AcquireError>> {
        self.poll_stage(cx, |stage| match stage {
            Stage::Asked => None,
            other => Some(self.granted(other)),
        })
    }

    fn granted(&self, stage: &Stage) -> Result<Token, AcquireError> {
        match stage {
            Stage::Held(token) => Ok(*token),
            Stage::Refused(error) => Err(error.clone()),
            Stage::Lost(reason) => {
                Err(AcquireError::Lost { name: self.name.clone(), reason: *reason })
            }
            Stage::Asked | Stage::Released => panic!("an acquisition ends before its release"),
        }
    }

    /// Waits until the release has ended.
    pub(super) fn wait_released(&self) -> Result<(), ReleaseError> {
        let state = self.state();
        let held = |state: &mut State| matches!(state.stage, Stage::Held(_));
        let state = self.changed.wait_while(state, held).unwrap_or_else(PoisonError::into_inner);
        self.released(&state.stage)
    }

    pub(super) fn poll_released(&self, cx: &Context<'_>) -> Poll<Result<(), ReleaseError>> {
        self.poll_stage(cx, |stage| match stage {
            Stage::Held(_) => None,
            other => Some(self.released(other)),
        })
    }

    fn released(&self, stage: &Stage) -> Result<(), ReleaseError> {
        match stage {
            Stage::Lost(reason) => {
                Err(ReleaseError::Lost { name: self.name.clone(), reason: *reason })
            }
            _ => Ok(()),
        }
    }

    /// How the lock was lost, if it was.
    pub(super) fn lost(&self) -> Option<LostReason> {
        match self.state().stage {
            Stage::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    pub(super) fn poll_lost(&self, cx: &Context<'_>) -> Poll<LostReason> {
        self.poll_stage(cx, |stage| match stage {
            Stage::Lost(reason) => Some(*reason),
            _ => None,
        })
    }

    fn poll_stage<T>(&self, cx: &Context<'_>, done: impl FnOnce(&Stage) -> Option<T>) -> Poll<T> {
        let mut state = self.state();
        if let Some(done) = done(&state.stage) {
            return Poll::Ready(done);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask::new("a".to_owned(), Mode::Exclusive, Patience::Endless)
    }

    #[test]
    fn a_grant_to_somebody_who_let_go_is_refused() {
        let ask = ask();
        ask.let_go();
        assert!(!ask.grant(Token::new(1, 1)));
    }

    #[test]
    fn a_loss_is_kept_beyond_the_release() {
        let ask = ask();
        assert!(ask.grant(Token::new(1, 1)));
        ask.lose(LostReason::RegionGone);
        ask.end(Ok(()));
        assert_eq!(ask.lost(), Some(LostReason::RegionGone));
        assert!(ask.wait_released().is_err());
    }

    #[test]
    fn what_was_asked_for_in_vain_is_refused() {
        let ask = ask();
        ask.lose(LostReason::SessionEnded);
        assert!(matches!(ask.wait_granted(), Err(AcquireError::Lost { .. })));
        assert_eq!(ask.lost(), None);
    }
}
