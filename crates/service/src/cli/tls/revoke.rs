//! The list of certificates that are revoked.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use farlock::SessionError;
use farlock::text::shown_whole;
use farlock_fabric::tcp::{certificate_number, revoked};

use super::authority::{Authority, take};
use crate::cli::report::{Exit, Failure, print_done};

const LIST: &str = "revoked.pem";

/// Writes these down as revoked, beside those that are.
pub(super) fn run(which: &[String], dir: &Path) -> Result<Exit, Failure> {
    let authority = Authority::load(dir)?;
    let _turn = turn(dir)?;
    let (own, list) = (dir.join("authority.pem"), dir.join(LIST));
    let mut all = revoked(&list, &own).map_err(SessionError::from)?;
    let before = all.len();
    for which in which {
        let path = certificate_of(which, dir)?;
        let number = certificate_number(&path, &own).map_err(SessionError::from)?;
        if !all.iter().any(|(known, _)| *known == number) {
            all.push((number, SystemTime::now()));
        }
    }
    if all.len() > before {
        replace(&list, &authority.list(&all)?)?;
    }
    let shown = shown_whole(&list.to_string_lossy());
    let count = all.len();
    let certificates = if count == 1 { "certificate" } else { "certificates" };
    print_done(match count - before {
        0 => format!("{shown} had them already"),
        _ => format!(
            "{shown} has {count} revoked {certificates}: servers with it take none of them from a \
             second or two later on"
        ),
    })?;
    Ok(Exit::OK)
}

/// The file of the certificate that is meant.
fn certificate_of(which: &str, dir: &Path) -> Result<PathBuf, Failure> {
    if which.contains('/') || Path::new(which).extension().is_some_and(|end| end == "pem") {
        return Ok(PathBuf::from(which));
    }
    let path = dir.join(which).join("client.pem");
    if path.exists() {
        return Ok(path);
    }
    let dir = dir.display();
    let what = format!("no certificate of a client {which:?} is in {dir}: no {}", path.display());
    let hint = "say the file of the certificate instead, as it is on a server's or client's host";
    Err(Failure::new(Exit::UNAVAILABLE, "tls-file", what, hint.to_owned()))
}

/// One that revokes at the same time would lose what this one writes.
fn turn(dir: &Path) -> Result<File, Failure> {
    let path = dir.join("authority.key");
    let locked = File::open(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| take(&path, error))
}

/// Servers read the list at any time: they find the last one, or this one whole.
fn replace(list: &Path, text: &str) -> Result<(), Failure> {
    let new = list.with_extension("new");
    let written = write(&new, text).and_then(|()| std::fs::rename(&new, list));
    written.map_err(|error| {
        // It was not there before, or was left by one that was killed.
        let _ = std::fs::remove_file(&new);
        take(list, error)
    })
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
