//! Any input is read or refused.

use proptest::prelude::*;

use super::LIMITS;
use crate::{FilePath, Format, Frontmatter, SkillPath, unpack};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn frontmatter_is_read_or_refused(text in "[ \\t\\n\\-a:#'\"|>\\[\\]{},&*!?%@~0.\\\\é]{0,60}") {
        let _ = Frontmatter::of(format!("---\n{text}\n---\n").as_bytes());
    }

    #[test]
    fn fields_are_read_as_json_strings(value in "\\PC{1,40}") {
        let yaml = serde_json::to_string(&value).unwrap();
        let text = format!("---\nname: a\ndescription: {yaml}\n---\n");
        let read = Frontmatter::of(text.as_bytes());
        prop_assert_eq!(read.map(|read| read.description().to_owned()), Ok(value));
    }

    #[test]
    fn any_bytes_are_unpacked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [Format::Zip, Format::TarGz] {
            for lead in [&b""[..], b"PK\x03\x04", b"\x1f\x8b\x08\x00"] {
                let _ = unpack(format, &[lead, &bytes[..]].concat(), "a", LIMITS);
            }
        }
    }

    #[test]
    fn paths_stay_inside_their_folder(text in "[a./\\\\ ~%é]{0,12}") {
        if let Ok(path) = FilePath::parse(&text) {
            prop_assert!(!path.as_str().split('/').any(|segment| matches!(segment, "" | "." | "..")));
            prop_assert!(path.uri_path().is_ascii());
        }
        if let Ok(path) = SkillPath::parse(&text) {
            prop_assert_eq!(path.root_uri().split('/').count(), path.as_str().split('/').count() + 3);
        }
    }
}
