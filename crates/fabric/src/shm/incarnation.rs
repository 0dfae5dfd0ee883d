//! The durable incarnation of a region: 16 bits that outlive the region and the machine's memory.
//!
//! Fencing tokens begin with it, so it never goes back: it is on disk before the region that
//! carries it can be seen. A crash between the two skips a number, which is harmless.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Instant;

use rustix::fs::OFlags;

use super::error::OpenError;
use super::file::{PrivateDir, io_error};

/// Draws the next incarnation of region `name`, higher than any drawn before and than `above`.
/// On return it is durable.
pub(super) fn draw(
    state: &PrivateDir,
    name: &str,
    above: u16,
    until: Option<Instant>,
) -> Result<u16, OpenError> {
    let _lock = state.lock(until)?;
    let last = read(state, name)?.max(above);
    let next = last
        .checked_add(1)
        .ok_or_else(|| OpenError::IncarnationsExhausted { name: name.to_owned() })?;
    write(state, name, next)?;
    Ok(next)
}

/// Makes sure that the durable incarnation is at least `seen`, which a region carries. It can be
/// lower only where its file was lost. Waits for nobody unless it is: the file is replaced whole.
pub(super) fn repair(
    state: &PrivateDir,
    name: &str,
    seen: u16,
    until: Option<Instant>,
) -> Result<(), OpenError> {
    if read(state, name)? >= seen {
        return Ok(());
    }
    let _lock = state.lock(until)?;
    if read(state, name)? < seen {
        write(state, name, seen)?;
    }
    Ok(())
}

fn file_name(name: &str) -> String {
    format!("{name}.incarnation")
}

/// The durable incarnation; 0 where there was none.
fn read(state: &PrivateDir, name: &str) -> Result<u16, OpenError> {
    /// Longest content: five digits and an end of line, and one more to notice excess.
    const TEXT_BYTES_MAX: u64 = 7;
    let file_name = file_name(name);
    let path = state.path_of(&file_name);
    let Some(file) = state.open_file(&file_name, OFlags::RDONLY)? else {
        return Ok(0);
    };
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|source| io_error("read", &path, source))?;
    let text = String::from_utf8_lossy(&bytes);
    match text.trim_end().parse::<u16>() {
        Ok(incarnation) if incarnation > 0 => Ok(incarnation),
        _ => Err(OpenError::IncarnationUnreadable { path, found: text.into_owned() }),
    }
}

/// Replaces the file in one step that survives a power failure at any moment.
fn write(state: &PrivateDir, name: &str, incarnation: u16) -> Result<(), OpenError> {
    let fresh = format!(".{name}.incarnation.new");
    let path = state.path_of(&fresh);
    let mut file: File = state.create_file(&fresh)?;
    file.write_all(format!("{incarnation}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|source| io_error("write", &path, source))?;
    state.rename(&fresh, &file_name(name))?;
    rustix::fs::fsync(state.fd()).map_err(|e| io_error("make durable", &path, e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::TestDir;

    #[test]
    fn incarnations_increase_and_are_never_repeated() {
        let dir = TestDir::new("draw");
        let state = PrivateDir::open(&dir.path().join("state")).unwrap();
        assert_eq!(draw(&state, "a", 0, None).unwrap(), 1);
        assert_eq!(draw(&state, "a", 0, None).unwrap(), 2);
        assert_eq!(draw(&state, "b", 0, None).unwrap(), 1);
        assert_eq!(draw(&state, "a", 40, None).unwrap(), 41);
        repair(&state, "a", 50, None).unwrap();
        repair(&state, "a", 3, None).unwrap();
        assert_eq!(draw(&state, "a", 0, None).unwrap(), 51);
    }

    #[test]
    fn the_last_incarnation_has_no_successor() {
        let dir = TestDir::new("exhausted");
        let state = PrivateDir::open(&dir.path().join("state")).unwrap();
        repair(&state, "a", u16::MAX, None).unwrap();
        assert!(matches!(draw(&state, "a", 0, None), Err(OpenError::IncarnationsExhausted { .. })));
    }

    #[test]
    fn an_unreadable_incarnation_is_not_taken_for_none() {
        let dir = TestDir::new("unreadable");
        let state = PrivateDir::open(&dir.path().join("state")).unwrap();
        for content in ["", "0\n", "65536\n", "-1", "x", "1234567890"] {
            let mut file = state.create_file("a.incarnation").unwrap();
            file.write_all(content.as_bytes()).unwrap();
            let drawn = draw(&state, "a", 0, None);
            assert!(
                matches!(drawn, Err(OpenError::IncarnationUnreadable { .. })),
                "{content:?} gave {drawn:?}"
            );
        }
    }

    #[test]
    fn concurrent_creators_draw_different_incarnations() {
        let dir = TestDir::new("concurrent");
        let path = dir.path().join("state");
        let mut drawn: Vec<u16> = std::thread::scope(|scope| {
            let drawers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let state = PrivateDir::open(&path).unwrap();
                        (0..5).map(|_| draw(&state, "a", 0, None).unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            drawers.into_iter().flat_map(|d| d.join().unwrap()).collect()
        });
        drawn.sort_unstable();
        assert_eq!(drawn, (1..=20).collect::<Vec<_>>());
    }
}
