//! Access to the machine: environment variables, user name, password file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{env, fmt, fs, io};

use super::error::ConninfoError;
use super::target::Conninfo;

/// Maximum size of a password file. A real one has a few lines.
const PASSFILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a connection string for a program, with the environment, user name and password file of this process, as
/// libpq does. `options` (keyword, value) apply to keywords that the string does not set.
pub fn load(program: &str, options: &[(&str, &str)], text: &str) -> Result<Conninfo, ConninfoError> {
    let variable = |name: &str| env::var(name).ok();
    let mut conninfo = Conninfo::parse(program, options, text, &variable, os_user().as_deref())?;
    if let Some(path) =
        conninfo.passfile.clone().filter(|_| conninfo.hosts.iter().any(|h| h.password.is_none()))
    {
        match read_passfile(&path) {
            Ok(text) => conninfo.use_passfile(&text),
            Err(why) => conninfo.passfile_ignored = why,
        }
    }
    Ok(conninfo)
}

/// The name of the effective user, from `/etc/passwd` or else (with a directory service) from the environment.
fn os_user() -> Option<String> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let listed = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    listed.or_else(|| env::var("USER").ok()).or_else(|| env::var("LOGNAME").ok())
}

/// Reads a password file, or returns why it is not used. The reason is `None` if the file does not exist.
///
/// As in libpq, a file that others can read is ignored, because its passwords are not secret.
fn read_passfile(path: &Path) -> Result<String, Option<String>> {
    let ignored = |why: &str| Some(format!("password file \"{}\" {why}", path.display()));
    let unread = |why: &dyn fmt::Display| ignored(&format!("cannot be read: {why}"));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(None),
        Err(e) => return Err(unread(&e)),
    };
    if !metadata.is_file() {
        return Err(ignored("is not a plain file"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(ignored("has group or world access; permissions should be u=rw (0600) or less"));
    }
    if metadata.len() > PASSFILE_BYTES_MAX {
        return Err(ignored("is longer than a password file can be"));
    }
    fs::read_to_string(path).map_err(|e| unread(&e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_password_file_that_others_can_read_is_ignored_with_a_reason() {
        let directory = env::temp_dir().join(format!("pgdyno-passfile-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("pgpass");
        fs::write(&path, "*:*:*:*:secret\n").unwrap();
        for (mode, is_used) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match read_passfile(&path) {
                Ok(text) => assert!(is_used && text.contains("secret"), "{mode:o}"),
                Err(why) => assert!(!is_used && why.unwrap().contains("u=rw (0600)"), "{mode:o}"),
            }
        }
        assert_eq!(read_passfile(&directory.join("missing")), Err(None));
        assert!(read_passfile(&directory).unwrap_err().unwrap().ends_with("\" is not a plain file"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
