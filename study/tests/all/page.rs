//! Pages: their text, their files, and the kit.

use retrograd_nn::replacing::{create_like, temporary_path};
use retrograd_study::Page;
use std::fs;
use std::path::Path;

const KIT_STYLE: &str = include_str!("../../assets/kit.css");
const KIT_SCRIPT: &str = include_str!("../../assets/kit.js");
const SEARCH_SCRIPT: &str = include_str!("../../assets/search.js");

#[test]
fn names_cannot_end_the_script() {
    let name = "</script><b>&amp;<!--";
    let html = Page::new(name, name).html();
    assert!(html.contains("<title>&lt;/script&gt;&lt;b&gt;&amp;amp;&lt;!--</title>"));
    assert!(html.contains("\"\\u003c/script>\\u003cb>&amp;\\u003c!--\"</script>"));
    assert_eq!(html.matches("</script>").count(), 3); // of the data, the kit and the search
}

#[test]
fn a_failed_write_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let page = |text: &str| Page::new("A page", text);
    let write = |path: &Path, text: &str| page(text).write(path);
    let check = |path: &Path, text: &str, files: usize| {
        assert_eq!(fs::read_to_string(path).unwrap(), page(text).html());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), files);
    };
    let path = folder.path().join("page.html");
    write(&path, "old").unwrap();
    let error = write(&folder.path().join("missing/page.html"), "new").unwrap_err();
    assert!(error.to_string().contains("page.html"), "{error}");
    check(&path, "old", 1);
    // A name of the greatest length, twice, and a device, which a rename would replace.
    let path = folder.path().join("é".repeat(127));
    write(&path, "old").and_then(|()| write(&path, "new")).unwrap();
    check(&path, "new", 2);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt, symlink};
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, "newer").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(write(Path::new("/dev/null"), "page").is_err());
        // What is at the temporary path is not written through.
        let temporary = temporary_path(&path, "", ".tmp");
        symlink(&path, &temporary).unwrap();
        assert!(create_like(&temporary, &path).is_err());
        assert_ne!(temporary, temporary_path(&path, "", ".tmp"));
        check(&path, "newer", 3);
    }
}

#[test]
fn the_kit_is_small() {
    assert!(KIT_SCRIPT.len() <= 40_000, "kit.js has {} bytes", KIT_SCRIPT.len());
}

#[test]
fn assets_contain_no_address() {
    for asset in [KIT_STYLE, KIT_SCRIPT, SEARCH_SCRIPT] {
        let addresses = asset.matches("http").count();
        assert_eq!(addresses, asset.matches("http://www.w3.org/2000/svg").count());
        assert!(!asset.contains("</script") && !asset.contains("<!--"));
    }
}
