//! The declaration of a section: each setting is one row with its documentation, name, kind, range and default.
//!
//! ```text
//! section! {
//!     /// How long writers of one agent wait for each other.
//!     #[derive(Clone, Debug)]
//!     pub struct Writes["writes"] {
//!         /// How many writes of one agent may wait; further ones are answered `503`.
//!         queue_per_agent: count(usize, 1..=100_000) = 1024,
//!         /// How long a write may wait.
//!         wait: seconds(1..=600) = 10,
//!     }
//! }
//! ```
//!
//! A row becomes a field of the struct, a call of [`Reader`](super::reader::Reader) that reads it, and an entry of
//! `config/waggle.toml`, which `waggle config reference` prints.
//!
//! | kind | setting | field |
//! |---|---|---|
//! | `count(T, range) = number` | the field's name | `T` |
//! | `size(T, range) = bytes` | the field's name | `T` |
//! | `milliseconds(range)`, `seconds(range)`, `minutes(range)`, `days(range) = number` | with the unit at its end: `_ms`, `_seconds` … | `Duration` |
//! | `value(T, kind) = default` | the field's name | `T` |
//! | `derived(T, kind) = default` | the same; its default follows from the settings above it | `T` |
//! | `optional(T, kind, example)`, with `= default` where one follows from other settings | the field's name | `Option<T>` |
//! | `rate(units per second, burst)` | two: `_per_second` and `_burst` | `Option<Rate>` |
//! | `system(variable)` | none: an environment variable of the operating system | `Option<OsString>` |

/// Declares a section. A default may refer to the fields above it.
macro_rules! section {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident[$section:literal] {
            $( $(#[doc = $line:literal])* $field:ident: $kind:ident $arguments:tt $(= $default:expr)? ),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $( $(#[doc = $line])* pub $field: $crate::config::section::field!($kind $arguments), )*
        }

        impl $name {
            pub(super) fn read(reader: &mut $crate::config::reader::Reader) -> Self {
                $(
                    reader.document(&[$($line),*]);
                    let $field =
                        $crate::config::section::read!(reader, $section, $field, $kind $arguments $(= $default)?);
                )*
                Self { $($field),* }
            }
        }
    };
}

/// The type of a field.
macro_rules! field {
    (count ($type:ty, $range:expr)) => { $type };
    (size ($type:ty, $range:expr)) => { $type };
    (milliseconds $range:tt) => { std::time::Duration };
    (seconds $range:tt) => { std::time::Duration };
    (minutes $range:tt) => { std::time::Duration };
    (days $range:tt) => { std::time::Duration };
    (value ($type:ty, $($rest:tt)*)) => { $type };
    (derived ($type:ty, $($rest:tt)*)) => { $type };
    (optional ($type:ty, $($rest:tt)*)) => { Option<$type> };
    (rate ($per_second:expr, $burst:expr)) => { Option<$crate::model::limits::Rate> };
    (system ($variable:literal)) => { Option<std::ffi::OsString> };
}

/// Reads a field.
macro_rules! read {
    ($reader:ident, $section:literal, $field:ident, count ($type:ty, $range:expr) = $default:expr) => {
        $reader.value(
            concat!($section, ".", stringify!($field)),
            &$crate::config::number::Count::<$type>($range),
            $default,
        )
    };
    ($reader:ident, $section:literal, $field:ident, size ($type:ty, $range:expr) = $default:expr) => {
        $reader.value(
            concat!($section, ".", stringify!($field)),
            &$crate::config::number::Size::<$type>($range),
            $default,
        )
    };
    ($reader:ident, $section:literal, $field:ident, milliseconds ($range:expr) = $default:expr) => {
        $crate::config::section::read!($reader, $section, $field, time "_ms", milliseconds, $range, $default)
    };
    ($reader:ident, $section:literal, $field:ident, seconds ($range:expr) = $default:expr) => {
        $crate::config::section::read!($reader, $section, $field, time "_seconds", seconds, $range, $default)
    };
    ($reader:ident, $section:literal, $field:ident, minutes ($range:expr) = $default:expr) => {
        $crate::config::section::read!($reader, $section, $field, time "_minutes", minutes, $range, $default)
    };
    ($reader:ident, $section:literal, $field:ident, days ($range:expr) = $default:expr) => {
        $crate::config::section::read!($reader, $section, $field, time "_days", days, $range, $default)
    };
    ($reader:ident, $section:literal, $field:ident, time $unit:literal, $of:ident, $range:expr, $default:expr) => {{
        let time = $crate::config::number::Time::$of($range);
        $reader.value(concat!($section, ".", stringify!($field), $unit), &time, time.duration($default))
    }};
    ($reader:ident, $section:literal, $field:ident, value ($type:ty, $kind:expr) = $default:expr) => {
        $reader.value(concat!($section, ".", stringify!($field)), &$kind, $default)
    };
    ($reader:ident, $section:literal, $field:ident, value ($type:ty, $kind:expr, $example:tt) = $default:expr) => {{
        $reader.example(stringify!($example));
        $reader.value(concat!($section, ".", stringify!($field)), &$kind, $default)
    }};
    ($reader:ident, $section:literal, $field:ident, derived ($type:ty, $kind:expr) = $default:expr) => {
        $reader.derived(concat!($section, ".", stringify!($field)), &$kind, $default)
    };
    ($reader:ident, $section:literal, $field:ident, optional ($type:ty, $kind:expr, $example:tt)) => {
        $crate::config::section::read!($reader, $section, $field, optional ($type, $kind, $example) = None)
    };
    ($reader:ident, $section:literal, $field:ident, optional ($type:ty, $kind:expr, $example:tt) = $default:expr) => {{
        $reader.example(stringify!($example));
        $reader.optional(concat!($section, ".", stringify!($field)), &$kind, $default)
    }};
    ($reader:ident, $section:literal, $field:ident, rate ($per_second:expr, $burst:expr)) => {{
        use $crate::config::number::Count;
        use $crate::model::limits::Rate;
        let per_second = concat!($section, ".", stringify!($field), "_per_second");
        let per_second = $reader.value(per_second, &Count(0..=Rate::MAX), $per_second);
        let burst = concat!($section, ".", stringify!($field), "_burst");
        Rate::new(per_second, $reader.value(burst, &Count(1..=Rate::MAX), $burst))
    }};
    ($reader:ident, $section:literal, $field:ident, system ($variable:literal)) => {
        $reader.system($variable)
    };
}

pub(super) use {field, read, section};
