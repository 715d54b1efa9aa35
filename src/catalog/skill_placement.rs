//! Where skills may be: not inside or around another one, nor over or below a resource: the folders around a skill are directories,
//! which are not read.

use ::skill::normal_uri_path;

use super::target::Target;
use crate::model::fault::{Fault, shortened};
use crate::model::skill::{SKILL_URIS, SkillRoot};
use crate::store::write::Write;

/// Refuses a skill inside or around another one, or over or below a resource.
const OCCUPIED: Fault = Fault::AlreadyExists("a skill or a resource above, at or below this path");
/// Refuses a resource inside a skill, or where a folder around one is.
const INSIDE: Fault = Fault::AlreadyExists("a skill above, at or below this URI");

/// Checks that a skill which is added is not inside or around another one, nor over or below a resource.
pub(super) async fn check_free(write: &mut Write, target: &Target, root: &SkillRoot) -> Result<(), Fault> {
    let root = root.as_str();
    let around: Vec<_> = SkillRoot::around(root).collect();
    let folder = root.strip_suffix('/').unwrap_or(root);
    let directories = around.iter().flat_map(|root| [Some(*root), root.strip_suffix('/')]).flatten();
    let directories: Vec<_> = directories.chain([folder]).collect();
    if write.has_skill(target.agent, &around, folder).await?
        || write.has_resource(target.agent, &directories, folder).await?
    {
        return Err(OCCUPIED);
    }
    Ok(())
}

/// Checks that a resource which is added is neither inside nor around a skill, and that [`check_written`] accepts its URI.
pub(super) async fn check_outside(write: &mut Write, target: &Target, uri: &str) -> Result<(), Fault> {
    let Some(normal) = of_skills(uri) else { return Ok(()) };
    let roots: Vec<_> = SkillRoot::around(&normal).collect();
    if write.has_skill(target.agent, &roots, &normal).await? { Err(INSIDE) } else { check_written(uri) }
}

/// Checks that the URI of a resource is written as those of skills are, if it has their scheme: a skill that is added later is
/// compared with the URIs as they are written.
pub(super) fn check_written(uri: &str) -> Result<(), Fault> {
    let Some(normal) = of_skills(uri) else { return Ok(()) };
    let path = without_query(uri);
    if path == normal || path.strip_suffix('/') == Some(&normal) {
        return Ok(());
    }
    Err(Fault::invalid_params(format!(
        "uri must be written {}, as the URIs of skills are",
        shortened(&normal)
    )))
}

/// The path of a URI as skills write it, if it has their scheme.
fn of_skills(uri: &str) -> Option<String> {
    let (scheme, path) = without_query(uri).split_at_checked(SKILL_URIS.len())?;
    // Schemes are compared without case.
    let is_of_skills = scheme.eq_ignore_ascii_case(SKILL_URIS);
    is_of_skills.then(|| format!("{SKILL_URIS}{}", normal_uri_path(path)))
}

fn without_query(uri: &str) -> &str {
    uri.split(['?', '#']).next().unwrap_or(uri)
}

/// Checks that no skill is inside another one, or over or below a resource, where these are all of an agent, in any order.
pub(super) fn check_no_overlap<'a>(
    roots: impl Iterator<Item = &'a SkillRoot>,
    uris: impl Iterator<Item = &'a str>,
) -> Result<(), Fault> {
    let mut roots: Vec<_> = roots.collect();
    roots.sort_unstable();
    // What is inside a skill's folder stands directly after it.
    let nested = roots.iter().zip(roots.iter().skip(1)).find(|(one, next)| one.contains(next.as_str()));
    if nested.is_some() {
        return Err(OCCUPIED);
    }
    for uri in uris.filter_map(of_skills) {
        let uri = &*uri;
        let folder = format!("{uri}/");
        let below = roots.get(roots.partition_point(|root| root.as_str() < &*folder));
        let before = roots.partition_point(|root| root.as_str() <= uri);
        let near = before.checked_sub(1).and_then(|last| roots.get(last));
        if below.is_some_and(|root| root.as_str().starts_with(&folder))
            || near.is_some_and(|root| root.contains(uri))
        {
            return Err(INSIDE);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ::skill::SkillPath;

    use super::{check_no_overlap, check_written};
    use crate::model::skill::SkillRoot;

    #[test]
    fn skills_and_resources_must_be_apart() {
        let root = |path: &str| SkillRoot::of(&SkillPath::parse(path).unwrap());
        let is_apart = |paths: &[&str], uris: &[&str]| {
            let roots: Vec<_> = paths.iter().map(|path| root(path)).collect();
            check_no_overlap(roots.iter(), uris.iter().copied()).is_ok()
        };
        assert!(is_apart(&["a", "a-b", "b/c", "b/d"], &["skill://a0", "skill://b0", "skill://b/e", "x:a/a"]));
        assert!(!is_apart(&["a-b", "a", "a/b"], &[]));
        assert!(!is_apart(&["x/a", "x/a/b/c", "x/a-b"], &[]));
        assert!(is_apart(&["b/c"], &["SKILL://b/e", "SKILL:b/c/d", "skill"]));
        for uri in [
            "skill://b",
            "skill://b/",
            "skill://b/c",
            "skill://b/c/",
            "skill://b/c/d",
            "skill://b/c/SKILL.md",
            "SKILL://b/c",
            "Skill://b/c/d",
            "skill://B/c/d",
            "skill://b//c/d",
            "skill://b/%63/d",
            "skill://%62/./c/d",
            "skill://b/e/../c",
            "skill://b/c?d",
        ] {
            assert!(!is_apart(&["a", "b/c", "b/c-d"], &[uri]), "{uri}");
        }
    }
    #[test]
    fn resources_are_written_as_skills_are() {
        for uri in [
            "x://A//b",
            "skill://a/b",
            "skill://a/B/?Q=//",
            "skill://a/b#C",
            "skill://a/%E4%B8%AD!",
            "skill://",
        ] {
            assert!(check_written(uri).is_ok(), "{uri}");
        }
        for (uri, normal) in [
            ("SKILL://a/b", "skill://a/b"),
            ("skill://A/B", "skill://a/B"),
            ("skill://a//b//", "skill://a/b"),
            ("skill://a/%62%2fc", "skill://a/b%2Fc"),
            ("skill://a/../../b", "skill://a/b"),
        ] {
            let expected = format!("uri must be written {normal}, as the URIs of skills are");
            assert_eq!(check_written(uri).unwrap_err().to_string(), expected);
        }
    }
}
