//! The recorded ratios that a run is compared with: the CPU time of each read as a multiple of a bare handler.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::Error;
use crate::report::Row;

/// A ratio above this multiple of the recorded one fails the check.
const TOLERANCE: f64 = 1.10;

/// The ratio to `limit` of each case, by its name and revision.
pub(crate) struct Baseline(BTreeMap<String, f64>);

/// A case whose ratio is above the tolerance.
#[derive(Debug)]
pub(crate) struct Behind {
    case: String,
    measured: f64,
    recorded: f64,
}

impl std::fmt::Display for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:.2} × limit, {:.2} recorded", self.case, self.measured, self.recorded)
    }
}

impl Baseline {
    /// Reads the file that [`write`](Self::write) wrote.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))?;
        let file: Value = serde_json::from_str(&text).map_err(|_| Error::Baseline(path.to_owned()))?;
        let ratios = file["ratios"].as_object().ok_or_else(|| Error::Baseline(path.to_owned()))?;
        let ratios = ratios.iter().map(|(case, ratio)| Some((case.clone(), ratio.as_f64()?)));
        ratios.collect::<Option<_>>().map(Self).ok_or_else(|| Error::Baseline(path.to_owned()))
    }

    /// The ratios of a run.
    pub(crate) fn of(rows: &[Row]) -> Self {
        let ratio = |row: &Row| Some((row.gate()?, row.ratio(rows)?));
        Self(rows.iter().filter_map(ratio).collect())
    }

    /// Writes the ratios to two decimals, with the machine that they were measured on.
    pub(crate) fn write(&self, path: &Path, setting: &str) -> Result<(), Error> {
        let rounded = |ratio: &f64| (ratio * 100.0).round() / 100.0;
        let ratios: BTreeMap<_, _> = self.0.iter().map(|(case, ratio)| (case, rounded(ratio))).collect();
        let setting: Vec<_> = setting.lines().collect();
        let file = json!({ "measured": setting, "ratios": ratios });
        fs::write(path, format!("{file:#}\n")).map_err(Error::io(format!("write {}", path.display())))
    }

    /// The cases of a run above the tolerance. Cases that are not recorded or were not measured are ignored.
    pub(crate) fn behind(&self, rows: &[Row]) -> Vec<Behind> {
        let Self(measured) = Self::of(rows);
        let compared = measured.into_iter().filter_map(|(case, measured)| {
            let recorded = *self.0.get(&case)?;
            Some(Behind { case, measured, recorded })
        });
        compared.filter(|case| case.measured > case.recorded * TOLERANCE).collect()
    }
}

impl Behind {
    /// Whether this is the case of a row.
    pub(crate) fn is(&self, row: &Row) -> bool {
        row.gate().as_ref() == Some(&self.case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::rows;

    fn baseline(ratio: f64) -> Baseline {
        Baseline(BTreeMap::from([("resources/read 1 KiB, 2026-07-28".to_owned(), ratio)]))
    }

    #[test]
    fn ratio_more_than_a_tenth_above_the_recorded_one_is_behind() {
        let rows = rows(&[10.0, 10.0], &[22.0, 22.0]);
        let behind = |recorded| baseline(recorded).behind(&rows).iter().map(ToString::to_string).collect();
        let one: Vec<String> = behind(1.99);
        assert_eq!(one, ["resources/read 1 KiB, 2026-07-28: 2.20 × limit, 1.99 recorded"]);
        let none: Vec<String> = behind(2.01);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn written_baseline_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("baseline.json");
        Baseline::of(&rows(&[10.0], &[18.004])).write(&path, "Machine: one.\nVersions: two.\n").unwrap();
        assert_eq!(Baseline::read(&path).unwrap().0, baseline(1.8).0);
    }
}
