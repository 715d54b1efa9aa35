//! The list of all kinds of definitions.

use super::definition::DefinitionKind;
use super::mount::Mount;
use super::prompt::Prompt;
use super::resource::Resource;
use super::skill::Skill;
use super::template::ResourceTemplate;

/// A type for each kind of definition, such as `Vec<K>`.
pub trait Family {
    /// The type for the kind `K`.
    type Of<K: DefinitionKind>;
}

/// The family without values.
#[derive(Debug)]
pub struct Nothing;

impl Family for Nothing {
    type Of<K: DefinitionKind> = ();
}

/// A kind that [`ByKind`] has a member for.
pub trait Member: DefinitionKind {
    /// The value of this kind.
    fn of<F: Family>(all: &ByKind<F>) -> &F::Of<Self>;

    /// As [`of`](Self::of), to be changed.
    fn of_mut<F: Family>(all: &mut ByKind<F>) -> &mut F::Of<Self>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $member:ident: $kind:ident,)*) => {
        /// A value for each kind of definition.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct ByKind<F: Family> {
            $($(#[$doc])* pub $member: F::Of<$kind>,)*
        }

        impl<F: Family> Default for ByKind<F>
        where
            $(F::Of<$kind>: Default,)*
        {
            fn default() -> Self {
                Self { $($member: Default::default(),)* }
            }
        }

        $(impl Member for $kind {
            fn of<F: Family>(all: &ByKind<F>) -> &F::Of<Self> {
                &all.$member
            }

            fn of_mut<F: Family>(all: &mut ByKind<F>) -> &mut F::Of<Self> {
                &mut all.$member
            }
        })*
    };
}

kinds! {
    /// Of resources.
    resources: Resource,
    /// Of resource templates.
    templates: ResourceTemplate,
    /// Of prompts.
    prompts: Prompt,
    /// Of skills.
    skills: Skill,
    /// Of mounts.
    mounts: Mount,
}

/// Evaluates an expression for each kind, one after the other, with `K` as the kind: `by_kind!(Lists, K => Vec::<K>::new())`
/// is a `ByKind<Lists>`.
macro_rules! by_kind {
    ($family:ty, $k:ident => $value:expr) => {
        $crate::model::kinds::ByKind::<$family> {
            resources: {
                type $k = $crate::model::resource::Resource;
                $value
            },
            templates: {
                type $k = $crate::model::template::ResourceTemplate;
                $value
            },
            prompts: {
                type $k = $crate::model::prompt::Prompt;
                $value
            },
            skills: {
                type $k = $crate::model::skill::Skill;
                $value
            },
            mounts: {
                type $k = $crate::model::mount::Mount;
                $value
            },
        }
    };
}

/// Evaluates an expression for each kind, one after the other, with `K` as the kind, and drops its values.
macro_rules! each_kind {
    ($k:ident => $value:expr) => {{
        let _ = $crate::model::kinds::by_kind!($crate::model::kinds::Nothing, $k => {
            $value;
        });
    }};
}

pub(crate) use {by_kind, each_kind};
