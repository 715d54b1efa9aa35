//! Archives: what is unpacked, and what is refused.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{LIMITS, SKILL};
use crate::{Format, unpack};

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (path, bytes) in entries {
        if path.ends_with('/') {
            writer.add_directory(*path, SimpleFileOptions::default()).unwrap();
        } else {
            writer.start_file(*path, SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Entries whose paths are written as they are.
fn raw_tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, kind, bytes) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    gzip(&builder.into_inner().unwrap())
}

fn unpacked(format: Format, bytes: &[u8]) -> Result<Vec<(String, usize)>, String> {
    let files = unpack(format, bytes, "refunds", LIMITS).map_err(|error| error.to_string())?;
    Ok(files.into_iter().map(|file| (file.path, file.bytes.len())).collect())
}

#[test]
fn archives_are_unpacked() {
    let text = SKILL.as_bytes();
    let expected = Ok(vec![("SKILL.md".to_owned(), text.len()), ("a/b".to_owned(), 2)]);
    for entries in [
        &[("SKILL.md", text), ("a/b", b"xy")][..],
        &[("SKILL.md", text), ("a/", b""), ("a/b", b"xy")],
        &[("refunds/", b""), ("refunds/SKILL.md", text), ("refunds/a/b", b"xy")],
    ] {
        assert_eq!(unpacked(Format::Zip, &zip(entries)), expected);
    }
    let (file, folder) = (EntryType::Regular, EntryType::Directory);
    for entries in [
        &[("SKILL.md", file, text), ("a/b", file, b"xy")][..],
        &[("./", folder, b""), ("./SKILL.md", file, text), ("./a/", folder, b""), ("./a/b", file, b"xy")],
        &[("refunds/SKILL.md", file, text), ("refunds/a/b", file, b"xy")],
    ] {
        assert_eq!(unpacked(Format::TarGz, &raw_tar(entries)), expected);
    }
    let elsewhere = zip(&[("other/SKILL.md", text)]);
    assert_eq!(unpacked(Format::Zip, &elsewhere), Ok(vec![("other/SKILL.md".to_owned(), text.len())]));
}

#[test]
fn hostile_zips_are_refused() {
    let error = |bytes: &[u8]| unpacked(Format::Zip, bytes).unwrap_err();
    assert_eq!(error(&zip(&[("a", &[0; 4_097])])), "the files of the skill have more than 4096 bytes");
    assert_eq!(error(&zip(&[("a", &vec![0; 1 << 24])])), "the files of the skill have more than 4096 bytes");
    let many: Vec<_> = (0..9).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(|name| (&**name, &b""[..])).collect();
    assert_eq!(error(&zip(&many)), "the skill has more than 8 files");
    let folders: Vec<_> = (0..4_097).map(|number| format!("{number}/")).collect();
    let folders: Vec<_> = folders.iter().map(|name| (&**name, &b""[..])).collect();
    assert_eq!(error(&zip(&folders)), "the archive has more than 4096 entries");
    assert_eq!(error(&b"PK\x01\x02".repeat(20_000)), "the archive has more than 4096 entries");
    assert!(error(b"").starts_with("the archive cannot be read: "));
    assert!(error(b"not a zip").starts_with("the archive cannot be read: "));
    let whole = zip(&[("SKILL.md", SKILL.as_bytes())]);
    assert!(error(&whole[..whole.len() - 1]).starts_with("the archive cannot be read: "));
    assert!(error(&whole[20..]).starts_with("the archive cannot be read: "));
    // A directory outside; files are checked with the skill.
    assert_eq!(error(&zip(&[("../x/", b"")])), "\"../x/\" has a segment . or ..");

    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.add_symlink("a", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    let link = writer.finish().unwrap().into_inner();
    assert_eq!(error(&link), "\"a\" is a link; expected files and directories");
    let replace = |bytes: &[u8], from: &[u8], to: &[u8]| {
        let mut bytes = bytes.to_vec();
        let found: Vec<_> =
            (0..=bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
        assert!(!found.is_empty());
        for at in found {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
        bytes
    };
    let twice = zip(&[("one", b"1"), ("two", b"2")]);
    assert_eq!(error(&replace(&twice, b"two", b"one")), "the archive cannot be read: a path occurs twice");
    assert_eq!(error(&replace(&twice, b"two", b"\xff\xfe\xfd")), "a path in the archive is not UTF-8");
    // The mode of a device, in the external attributes.
    let mut device = whole.clone();
    let central = device.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    device[central + 38..central + 42].copy_from_slice(&(0o020_644_u32 << 16).to_le_bytes());
    assert_eq!(error(&device), "\"SKILL.md\" is a device; expected files and directories");
    let mut encrypted = whole.clone();
    encrypted[central + 8] |= 1;
    assert_eq!(error(&encrypted), "\"SKILL.md\" is encrypted");
    let mut corrupt = whole;
    corrupt[central + 16] ^= 1;
    assert!(error(&corrupt).starts_with("the archive cannot be read: "));
}

#[test]
fn hostile_tars_are_refused() {
    let error = |bytes: &[u8]| unpacked(Format::TarGz, bytes).unwrap_err();
    let file = EntryType::Regular;
    assert_eq!(
        error(&raw_tar(&[("a", file, &[0; 4_097])])),
        "the files of the skill have more than 4096 bytes"
    );
    assert_eq!(error(&gzip(&vec![0; 64 << 20])), "the files of the skill have more than 4096 bytes");
    for (kind, called) in [
        (EntryType::Symlink, "a link"),
        (EntryType::Link, "a link"),
        (EntryType::Char, "a device"),
        (EntryType::Block, "a device"),
        (EntryType::Fifo, "a device"),
    ] {
        let expected = format!("\"a\" is {called}; expected files and directories");
        assert_eq!(error(&raw_tar(&[("a", kind, b"")])), expected);
    }
    assert_eq!(
        error(&raw_tar(&[("/x/", EntryType::Directory, b"")])),
        "\"/x/\" is absolute; expected a path relative to the folder of the skill"
    );
    assert_eq!(
        error(&raw_tar(&[("a\u{ff}/../", EntryType::Directory, b"")])),
        "\"aÿ/../\" has a segment . or .."
    );
    let many: Vec<_> = (0..9).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(|name| (&**name, file, &b""[..])).collect();
    assert_eq!(error(&raw_tar(&many)), "the skill has more than 8 files");
    let folders = vec![("a/", EntryType::Directory, &b""[..]); 4_097];
    assert_eq!(error(&raw_tar(&folders)), "the archive has more than 4096 entries");
    assert!(error(b"").starts_with("the archive cannot be read: "));
    assert!(error(b"not gzip").starts_with("the archive cannot be read: "));
    let whole = raw_tar(&[("SKILL.md", file, SKILL.as_bytes())]);
    assert!(error(&whole[..whole.len() - 9]).starts_with("the archive cannot be read: "));
    let mut corrupt = whole;
    let checksum = corrupt.len() - 8;
    corrupt[checksum] ^= 1;
    assert!(error(&corrupt).starts_with("the archive cannot be read: "));
}
