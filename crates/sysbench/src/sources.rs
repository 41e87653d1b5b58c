//! Where the texts of scripts and modules come from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::stock;

/// The longest text that is read.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Modules and files that a script may load. All of them are Lua texts: nothing else can be read through them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// By name of the module: its text.
    pub given: BTreeMap<String, String>,
    /// Where `NAME.lua` is looked for, in this order.
    pub directories: Vec<PathBuf>,
    /// Whether files outside the directories may be loaded.
    pub anywhere: bool,
}

impl Sources {
    /// The text of a module and its place.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<(String, String)> {
        if let Some(text) = self.given.get(name) {
            return Some((text.clone(), format!("{name}.lua")));
        }
        let file = format!("{}.lua", name.replace('.', "/"));
        let found =
            self.directories.iter().find_map(|directory| self.read(&directory.join(&file), directory));
        found.or_else(|| stock::text(name).map(|text| (text.to_owned(), format!("{name}.lua"))))
    }

    /// The text of a file and its place: by its path, or by its name in one of the directories.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<(String, String)> {
        let name = Path::new(path).file_name()?.to_str()?;
        let module = name.strip_suffix(".lua")?;
        if let Some(text) = self.given.get(module) {
            return Some((text.clone(), path.to_owned()));
        }
        let here = Path::new(path);
        let candidates = self.directories.iter().flat_map(|directory| {
            [directory.join(path), directory.join(name), here.to_owned()]
                .map(|candidate| (candidate, directory))
        });
        let found =
            candidates.into_iter().find_map(|(candidate, directory)| self.read(&candidate, directory));
        found.or_else(|| stock::text(module).map(|text| (text.to_owned(), path.to_owned())))
    }

    fn read(&self, path: &Path, directory: &Path) -> Option<(String, String)> {
        let is_plain = !path.components().any(|component| component == Component::ParentDir);
        let is_inside = || Some(fs::canonicalize(path).ok()?.starts_with(fs::canonicalize(directory).ok()?));
        let is_allowed = self.anywhere || (is_plain && is_inside()?);
        if !is_allowed {
            return None;
        }
        if fs::metadata(path).ok()?.len() > TEXT_BYTES_MAX {
            return None;
        }
        let text = fs::read(path).ok()?;
        Some((String::from_utf8_lossy(&text).into_owned(), path.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_module_comes_before_a_stock_one() {
        let mut sources = Sources::default();
        assert!(sources.module("oltp_common").expect("stock").0.contains("sbtest"));
        sources.given.insert("oltp_common".into(), "return 1".into());
        assert_eq!(sources.module("oltp_common").expect("given").0, "return 1");
        assert!(sources.module("none").is_none());
    }

    #[test]
    fn only_lua_files_inside_the_directories_are_read() {
        let root = std::env::temp_dir().join(format!("pgdyno-sources-{}", std::process::id()));
        let inside = root.join("inside");
        fs::create_dir_all(&inside).expect("a directory");
        fs::write(inside.join("a.lua"), "return 'a'").expect("a file");
        fs::write(root.join("secret.lua"), "return 's'").expect("a file");
        let sources = Sources { directories: vec![inside.clone()], ..Sources::default() };
        assert_eq!(sources.module("a").expect("inside").0, "return 'a'");
        assert_eq!(
            sources.file(inside.join("a.lua").to_str().expect("text")).expect("inside").0,
            "return 'a'"
        );
        assert!(sources.file("../secret.lua").is_none());
        assert!(sources.file(root.join("secret.lua").to_str().expect("text")).is_none());
        assert!(sources.module("..secret").is_none());
        assert!(sources.file("/etc/passwd").is_none());
        let open = Sources { anywhere: true, ..sources };
        assert!(open.file(root.join("secret.lua").to_str().expect("text")).is_some());
        fs::remove_dir_all(root).expect("to remove");
    }
}
