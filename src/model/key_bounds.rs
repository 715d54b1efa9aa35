//! Bounds on the keys that a key creates, rotates or changes: their scopes, networks, lifetime and rate must
//! be within its own. What is not requested is inherited if that is narrower; requesting more is rejected.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::caller::KeyScope;
use super::client_address::Networks;
use super::fault::Fault;
use super::ids::{KeyId, PrincipalId};
use super::key::ApiKey;
use super::limits::{KeyLimits, Rate, RateLimit};

/// Who creates, rotates or changes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// The operator, without bounds.
    Operator,
    /// An owner key.
    Key(KeyId),
}

/// The bounds on keys that a caller creates, rotates or changes.
#[derive(Debug)]
pub struct KeyBounds {
    /// `None` for the operator.
    maker: Option<ApiKey>,
    /// The default rate of keys.
    default: Option<Rate>,
}

impl KeyBounds {
    /// The bounds of a key, or none for the operator.
    pub fn new(maker: Option<ApiKey>, default: Option<Rate>) -> Self {
        Self { maker, default }
    }

    /// The principal recorded as the creator.
    pub fn principal(&self) -> Option<PrincipalId> {
        self.maker.as_ref().map(|maker| maker.principal)
    }

    /// The scopes of a new key: those requested, otherwise those of `default` that the calling key has,
    /// otherwise all that it has.
    ///
    /// # Errors
    /// [`Fault::InsufficientScope`] with the first requested scope that the calling key lacks.
    pub fn scopes(&self, asked: Option<Vec<KeyScope>>, default: &[KeyScope]) -> Result<Vec<KeyScope>, Fault> {
        let Some(maker) = &self.maker else { return Ok(asked.unwrap_or_else(|| default.to_vec())) };
        if let Some(asked) = asked {
            covers(maker, &asked)?;
            return Ok(asked);
        }
        let shared: Vec<_> = default.iter().copied().filter(|scope| maker.scopes.contains(scope)).collect();
        Ok(if shared.is_empty() { maker.scopes.clone() } else { shared })
    }

    /// The networks of a new key: those requested, otherwise those of the calling key.
    ///
    /// # Errors
    /// [`Fault::NotPermitted`] with the first network outside those of the calling key.
    pub fn networks(&self, asked: Option<Networks>) -> Result<Networks, Fault> {
        match (&self.maker, asked) {
            (None, asked) => Ok(asked.unwrap_or_default()),
            (Some(maker), None) => Ok(maker.networks.clone()),
            (Some(maker), Some(asked)) => {
                within(maker, &asked)?;
                Ok(asked)
            }
        }
    }

    /// The expiry of a new key: the one requested, otherwise that of the calling key.
    ///
    /// # Errors
    /// [`Fault::NotPermitted`] if the calling key expires earlier.
    pub fn expiry(&self, asked: Option<OffsetDateTime>) -> Result<Option<OffsetDateTime>, Fault> {
        let end = self.maker.as_ref().and_then(|maker| maker.expires_at);
        match (asked, end) {
            (Some(asked), Some(end)) if asked > end => Err(Fault::not_permitted(format!(
                "expiresAt must be at most {}, when the calling key expires",
                end.format(&Rfc3339).unwrap_or_default(),
            ))),
            (asked, end) => Ok(asked.or(end)),
        }
    }

    /// The limits of a new key: those requested, otherwise the rate of the calling key if it is below the
    /// default.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] above the default, [`Fault::NotPermitted`] above the rate of the calling key.
    pub fn limits(&self, asked: Option<RateLimit>) -> Result<KeyLimits, Fault> {
        let Some(own) = self.own_rate() else {
            return Ok(KeyLimits { operator: asked.unwrap_or_default(), owner: RateLimit::default() });
        };
        let operator = RateLimit::default();
        Ok(KeyLimits { operator, owner: self.owner_part(operator, asked, own)? })
    }

    /// The limits of a changed key. The operator sets the operator's part and an owner the owner's part;
    /// `None` removes that part.
    ///
    /// # Errors
    /// Those of [`limits`](Self::limits), and [`Fault::NotPermitted`] if there is only an operator's part to
    /// remove.
    pub fn changed_limits(&self, present: KeyLimits, asked: Option<RateLimit>) -> Result<KeyLimits, Fault> {
        let Some(own) = self.own_rate() else {
            return Ok(KeyLimits { operator: asked.unwrap_or_default(), ..present });
        };
        let nothing = RateLimit::default();
        if asked.is_none() && present.operator != nothing && present.owner == nothing {
            return Err(Fault::not_permitted(
                "limits: the operator set the limits of this key; only the operator key changes them",
            ));
        }
        Ok(KeyLimits { owner: self.owner_part(present.operator, asked, own)?, ..present })
    }

    /// Checks that the calling key has all scopes and networks of a key that it rotates or changes.
    ///
    /// # Errors
    /// [`Fault::InsufficientScope`] with the first scope, [`Fault::NotPermitted`] with the first network that it lacks.
    pub fn check_reach(&self, key: &ApiKey) -> Result<(), Fault> {
        let Some(maker) = &self.maker else { return Ok(()) };
        covers(maker, &key.scopes)?;
        within(maker, &key.networks)
    }

    /// Checks that a key to which labels are added neither outlives the calling key nor has a higher rate: what it sees by the
    /// change it would see after the end of that key.
    ///
    /// # Errors
    /// [`Fault::NotPermitted`].
    pub fn check_labelled(&self, key: &ApiKey) -> Result<(), Fault> {
        let Some(maker) = &self.maker else { return Ok(()) };
        if let Some(end) = maker.expires_at
            && key.expires_at.is_none_or(|own| own > end)
        {
            let end = end.format(&Rfc3339).unwrap_or_default();
            return Err(Fault::not_permitted(format!(
                "labels: the key must expire by {end}, when the calling key does"
            )));
        }
        let own = maker.limits.effective(self.default);
        if Rate::exceeds(key.limits.effective(self.default), own) {
            return Err(above("the limits of the calling key", own));
        }
        Ok(())
    }

    /// Expiry and limits of the key that replaces `old`: those of `old`, within the expiry and rate of the
    /// calling key.
    ///
    /// # Errors
    /// Those of [`check_reach`](Self::check_reach).
    pub fn successor(&self, old: &ApiKey) -> Result<(Option<OffsetDateTime>, KeyLimits), Fault> {
        let (Some(maker), Some(own)) = (&self.maker, self.own_rate()) else {
            return Ok((old.asked_expiry, old.limits));
        };
        self.check_reach(old)?;
        let expires_at = old.asked_expiry.into_iter().chain(maker.expires_at).min();
        let mut limits = old.limits;
        if let Some(tighter) = Rate::tighter(limits.effective(self.default), own)
            && Rate::exceeds(limits.effective(self.default), own)
        {
            limits.owner = tighter.into();
        }
        Ok((expires_at, limits))
    }

    /// The rate of the calling key; `None` for the operator.
    #[expect(clippy::option_option, reason = "no bound at all is not the same as a key without a limit")]
    fn own_rate(&self) -> Option<Option<Rate>> {
        self.maker.as_ref().map(|maker| maker.limits.effective(self.default))
    }

    /// The limit that an owner key with the rate `own` may set in addition to the operator's.
    fn owner_part(
        &self,
        operator: RateLimit,
        asked: Option<RateLimit>,
        own: Option<Rate>,
    ) -> Result<RateLimit, Fault> {
        let ceiling = operator.effective(self.default);
        let most = Rate::tighter(ceiling, own);
        let Some(asked) = asked else {
            let inherited = most.filter(|_| Rate::exceeds(ceiling, own));
            return Ok(inherited.map(RateLimit::from).unwrap_or_default());
        };
        let rate = asked.effective(most);
        if Rate::exceeds(rate, ceiling) {
            return Err(if operator == RateLimit::default() {
                Fault::invalid_params("limits: only the operator can set more than the default rate")
            } else {
                above("set by the operator for this key", ceiling)
            });
        }
        if Rate::exceeds(rate, own) {
            return Err(above("the limits of the calling key", own));
        }
        // A burst alone leaves the rate at the default, which may exceed that of the calling key.
        let inherits = asked.per_second.is_none() && Rate::exceeds(ceiling, own);
        Ok(rate.filter(|_| inherits).map_or(asked, RateLimit::from))
    }
}

fn covers(maker: &ApiKey, scopes: &[KeyScope]) -> Result<(), Fault> {
    let lacking = scopes.iter().find(|scope| !maker.scopes.contains(scope));
    lacking.map_or(Ok(()), |scope| Err(Fault::InsufficientScope(scope.as_str())))
}

fn within(maker: &ApiKey, networks: &Networks) -> Result<(), Fault> {
    maker.networks.first_outside(networks).map_or(Ok(()), |outside| {
        let own = maker.networks.to_texts().join(", ");
        Err(Fault::not_permitted(format!(
            "networks: {outside} is outside of {own}, the networks of the calling key"
        )))
    })
}

fn above(source: &str, most: Option<Rate>) -> Fault {
    let (per_second, burst) = most.map_or((0, 0), |rate| (rate.per_second.get(), rate.burst.get()));
    Fault::not_permitted(format!(
        "limits must not exceed {per_second} requests/s and a burst of {burst}, {source}"
    ))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;
    use crate::model::ids::TenantId;
    use crate::model::label::Labels;
    use crate::model::scope::Revision;

    const END: OffsetDateTime = datetime!(2026-12-01 00:00 UTC);

    fn key(scopes: &[KeyScope], networks: &[&str], expires_at: Option<OffsetDateTime>) -> ApiKey {
        ApiKey {
            uid: KeyId(Uuid::nil()),
            tenant: TenantId(Uuid::nil()),
            agent: None,
            display: String::new(),
            name: String::new(),
            scopes: scopes.to_vec(),
            labels: Labels::default(),
            limits: KeyLimits::default(),
            principal: PrincipalId(Uuid::nil()),
            maker: None,
            revision: Revision(1),
            created_at: datetime!(2026-11-01 00:00 UTC),
            expires_at,
            asked_expiry: expires_at,
            networks: Networks::parse(networks.iter().copied()).unwrap(),
            revoked_at: None,
            last_used_at: None,
        }
    }

    fn limited(per_second: u32, burst: u32) -> ApiKey {
        let operator = RateLimit { per_second: Some(per_second), burst: Some(burst) };
        let limits = KeyLimits { operator, owner: RateLimit::default() };
        ApiKey { limits, ..key(&[KeyScope::Registry], &[], None) }
    }

    fn bounds(maker: Option<ApiKey>) -> KeyBounds {
        KeyBounds::new(maker, Rate::new(200, 400))
    }

    fn limit(per_second: impl Into<Option<u32>>, burst: impl Into<Option<u32>>) -> RateLimit {
        RateLimit { per_second: per_second.into(), burst: burst.into() }
    }

    fn message<T: std::fmt::Debug>(refused: Result<T, Fault>) -> String {
        refused.unwrap_err().to_string()
    }

    #[test]
    fn scopes_are_within_those_of_the_calling_key() {
        use KeyScope::{Audit, Mcp, Registry};
        let of = |own: &[KeyScope], asked: Option<&[KeyScope]>| {
            bounds(Some(key(own, &[], None))).scopes(asked.map(<[_]>::to_vec), &[Mcp])
        };
        assert_eq!(of(&[Mcp, Registry], Some(&[Mcp])), Ok(vec![Mcp]));
        assert_eq!(of(&[Mcp, Registry], None), Ok(vec![Mcp]));
        assert_eq!(of(&[Registry], None), Ok(vec![Registry]), "inherited");
        assert_eq!(
            message(of(&[Registry], Some(&[Registry, Audit]))),
            "this credential lacks the scope audit"
        );
        assert_eq!(bounds(None).scopes(Some(vec![Audit]), &[Mcp]), Ok(vec![Audit]));
    }

    #[test]
    fn networks_and_expiry_are_within_those_of_the_calling_key() {
        let narrow = bounds(Some(key(&[], &["10.0.0.0/8"], Some(END))));
        let networks = |items: &[&str]| Networks::parse(items.iter().copied()).unwrap();
        assert_eq!(narrow.networks(None), Ok(networks(&["10.0.0.0/8"])));
        assert_eq!(narrow.networks(Some(networks(&["10.1.0.0/16"]))), Ok(networks(&["10.1.0.0/16"])));
        for (asked, outside) in [(&["11.0.0.1"][..], "11.0.0.1/32"), (&[], "any address")] {
            let refusal =
                format!("networks: {outside} is outside of 10.0.0.0/8, the networks of the calling key");
            assert_eq!(message(narrow.networks(Some(networks(asked)))), refusal);
        }
        assert_eq!(narrow.expiry(None), Ok(Some(END)));
        assert_eq!(narrow.expiry(Some(END)), Ok(Some(END)));
        let refusal = "expiresAt must be at most 2026-12-01T00:00:00Z, when the calling key expires";
        assert_eq!(message(narrow.expiry(Some(END + time::Duration::SECOND))), refusal);
        assert_eq!(bounds(None).expiry(None), Ok(None));
    }

    #[test]
    fn rate_is_within_that_of_the_calling_key() {
        let owner = |maker, asked| bounds(Some(maker)).limits(asked).map(|limits| limits.owner);
        let wide = || limited(1_000, 2_000);
        assert_eq!(owner(wide(), None), Ok(limit(None, None)), "more than the default is not inherited");
        assert_eq!(owner(wide(), Some(limit(100, None))), Ok(limit(100, None)));
        let default = "limits: only the operator can set more than the default rate";
        assert_eq!(message(owner(wide(), Some(limit(201, 400)))), default);
        assert_eq!(message(owner(wide(), Some(limit(0, None)))), default);
        let narrow = || limited(50, 60);
        assert_eq!(owner(narrow(), None), Ok(limit(50, 60)));
        assert_eq!(owner(narrow(), Some(limit(20, 40))), Ok(limit(20, 40)));
        assert_eq!(owner(narrow(), Some(limit(None, 10))), Ok(limit(50, 10)), "a burst alone");
        let most = "limits must not exceed 50 requests/s and a burst of 60, the limits of the calling key";
        assert_eq!(message(owner(narrow(), Some(limit(51, 60)))), most);
        assert_eq!(message(owner(narrow(), Some(limit(40, None)))), most, "80 at once");
    }

    #[test]
    fn owner_changes_only_its_own_part_of_the_limits() {
        let wide = bounds(Some(limited(1_000, 2_000)));
        let present = KeyLimits { operator: limit(100, 200), owner: limit(50, 100) };
        let owner = |asked| wide.changed_limits(present, asked);
        assert_eq!(owner(Some(limit(100, 200))), Ok(KeyLimits { owner: limit(100, 200), ..present }));
        assert_eq!(owner(None), Ok(KeyLimits { owner: limit(None, None), ..present }));
        let most =
            "limits must not exceed 100 requests/s and a burst of 200, set by the operator for this key";
        assert_eq!(message(owner(Some(limit(101, 200)))), most);
        let operators = KeyLimits { owner: RateLimit::default(), ..present };
        let refusal = "limits: the operator set the limits of this key; only the operator key changes them";
        assert_eq!(message(wide.changed_limits(operators, None)), refusal);
        let operator = bounds(None).changed_limits(present, None);
        assert_eq!(operator, Ok(KeyLimits { operator: limit(None, None), ..present }));
        let narrow = bounds(Some(limited(20, 30)));
        assert_eq!(narrow.changed_limits(present, None).map(|limits| limits.owner), Ok(limit(20, 30)));
    }

    #[test]
    fn successor_is_within_the_bounds_of_the_calling_key() {
        use KeyScope::{Mcp, Registry};
        let maker = || ApiKey { networks: Networks::parse(["10.0.0.0/8"]).unwrap(), ..limited(50, 60) };
        let by = |maker: ApiKey, old: &ApiKey| bounds(Some(maker)).successor(old);
        let old = key(&[Registry], &["10.0.0.1"], None);
        let (expires_at, limits) = by(ApiKey { expires_at: Some(END), ..maker() }, &old).unwrap();
        assert_eq!((expires_at, limits.owner), (Some(END), limit(50, 60)));
        let earlier = ApiKey { asked_expiry: Some(END - time::Duration::DAY), ..old.clone() };
        let shortened = by(ApiKey { expires_at: Some(END), ..maker() }, &earlier).unwrap();
        assert_eq!(shortened.0, earlier.asked_expiry);
        let wider = key(&[Mcp, Registry], &["10.0.0.1"], None);
        assert_eq!(message(by(maker(), &wider)), "this credential lacks the scope mcp");
        let refusal = "networks: any address is outside of 10.0.0.0/8, the networks of the calling key";
        assert_eq!(message(by(maker(), &key(&[Registry], &[], None))), refusal);
        assert_eq!(bounds(None).successor(&wider), Ok((None, wider.limits)));
    }
}
