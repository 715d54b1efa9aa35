//! The egress policy: hosts in every form, and which addresses are reached.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Answers a name with the next of its lists of addresses, with the last one from then on.
struct ScriptedResolver {
    lists: HashMap<&'static str, Vec<Vec<IpAddr>>>,
    lookups: AtomicUsize,
}

impl Resolve for ScriptedResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let lookup = self.lookups.fetch_add(1, Ordering::Relaxed);
        let found = self.lists.get(host).map(|lists| lists[lookup.min(lists.len() - 1)].clone());
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

fn names(lists: &[(&'static str, &[&[&str]])]) -> Arc<ScriptedResolver> {
    let parse = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
    let lists = lists.iter().map(|(name, lists)| (*name, lists.iter().map(parse).collect()));
    Arc::new(ScriptedResolver { lists: lists.collect(), lookups: AtomicUsize::new(0) })
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The answers for hosts, in the order of the table: an address means that it is connected to.
async fn answers(egress: &Egress, cases: &[(&'static str, Result<&'static str, FetchError>)]) {
    let mut found = Vec::new();
    for (host, _) in cases {
        let answer = egress.resolve(host, 443).await;
        found.push((*host, answer.map(|addresses| addresses[0].ip().to_string())));
    }
    let expected: Vec<_> = cases.iter().map(|(host, answer)| (*host, answer.map(str::to_owned))).collect();
    assert_eq!(found, expected);
}

const NOT: Result<&str, FetchError> = Err(FetchError::NotAllowed);

#[tokio::test]
async fn ipv4_addresses_that_are_not_public_are_refused_in_every_form() {
    let cases = [
        // By network.
        ("0.0.0.0", NOT),
        ("0.1.2.3", NOT),
        ("10.0.0.1", NOT),
        ("10.255.255.255", NOT),
        ("100.64.0.1", NOT),
        ("100.100.100.200", NOT),
        ("100.127.255.255", NOT),
        ("127.0.0.1", NOT),
        ("127.255.255.254", NOT),
        ("168.63.129.16", NOT),
        ("169.254.169.254", NOT),
        ("169.254.170.2", NOT),
        ("172.16.0.1", NOT),
        ("172.31.255.255", NOT),
        ("192.0.0.192", NOT),
        ("192.0.2.1", NOT),
        ("192.88.99.1", NOT),
        ("192.168.1.1", NOT),
        ("198.18.0.1", NOT),
        ("198.19.255.255", NOT),
        ("198.51.100.1", NOT),
        ("203.0.113.1", NOT),
        ("224.0.0.1", NOT),
        ("239.255.255.255", NOT),
        ("240.0.0.1", NOT),
        ("255.255.255.255", NOT),
        // In other forms.
        ("2130706433", NOT),
        ("0x7f000001", NOT),
        ("0X7F.1", NOT),
        ("017700000001", NOT),
        ("0177.0.0.1", NOT),
        ("127.1", NOT),
        ("127.0.1", NOT),
        ("0", NOT),
        ("127.0.0.1.", NOT),
        ("127.0.0.1..", NOT),
        ("%31%32%37.0.0.1", NOT),
        ("１２７.０.０.１", NOT),
        ("127。0。0。1", NOT),
        ("①②⑦.0.0.1", NOT),
        ("0xa9fea9fe", NOT),
        ("2852039166", NOT),
        ("256.1.1.1", NOT),
        ("1.2.3.4.5", NOT),
        // Public ones.
        ("8.8.8.8", Ok("8.8.8.8")),
        ("100.63.255.255", Ok("100.63.255.255")),
        ("134744072", Ok("8.8.8.8")),
        ("172.32.0.1", Ok("172.32.0.1")),
        ("223.255.255.255", Ok("223.255.255.255")),
    ];
    answers(&Egress::new(Vec::new(), names(&[])), &cases).await;
}

#[tokio::test]
async fn ipv6_addresses_that_are_not_public_are_refused_in_every_form() {
    let cases = [
        // By network.
        ("::", NOT),
        ("::1", NOT),
        ("[::1]", NOT),
        ("0:0:0:0:0:0:0:1", NOT),
        ("100::1", NOT),
        ("2001:db8::1", NOT),
        ("2001:2::1", NOT),
        ("2001:10::1", NOT),
        ("2001:20::1", NOT),
        ("3fff::1", NOT),
        ("4000::1", NOT),
        ("5f00::1", NOT),
        ("fc00::1", NOT),
        ("fd00:ec2::254", NOT),
        ("fd20:ce::254", NOT),
        ("fe80::1", NOT),
        ("fe80::1%eth0", NOT),
        ("[fe80::1%25eth0]", NOT),
        ("fec0::1", NOT),
        ("ff02::1", NOT),
        // Addresses of IPv4 within IPv6.
        ("::ffff:127.0.0.1", NOT),
        ("[::ffff:7f00:1]", NOT),
        ("::ffff:169.254.169.254", NOT),
        ("::ffff:10.0.0.1", NOT),
        ("::127.0.0.1", NOT),
        ("::8.8.8.8", NOT),
        ("::ffff:0:127.0.0.1", NOT),
        ("64:ff9b::127.0.0.1", NOT),
        ("64:ff9b::a9fe:a9fe", NOT),
        ("64:ff9b:1::8.8.8.8", NOT),
        ("2002:7f00:1::1", NOT),
        ("2002:808:808::1", NOT),
        ("2001:0:53aa:64c::1", NOT),
        ("2606:4700::5efe:10.0.0.1", NOT),
        ("2606:4700::200:5efe:127.0.0.1", NOT),
        // What is neither an address nor a name.
        ("", NOT),
        ("user@8.8.8.8", NOT),
        ("8.8.8.8:80", NOT),
        ("8.8.8.8/", NOT),
        ("[::1", NOT),
        (".", NOT),
        ("a..b", NOT),
        ("a b", NOT),
        ("a\0b", NOT),
        // Public ones.
        ("2606:4700::1111", Ok("2606:4700::1111")),
        ("[2606:4700::1111]", Ok("2606:4700::1111")),
        ("::ffff:8.8.8.8", Ok("::ffff:8.8.8.8")),
        ("64:ff9b::8.8.8.8", Ok("64:ff9b::808:808")),
        ("2606:4700::5efe:8.8.8.8", Ok("2606:4700::5efe:808:808")),
    ];
    answers(&Egress::new(Vec::new(), names(&[])), &cases).await;
}

#[tokio::test]
async fn names_are_refused_for_any_address_that_is_not_public() {
    let resolver = names(&[
        ("localhost", &[&["127.0.0.1", "::1"]]),
        ("localhost.", &[&["127.0.0.1"]]),
        ("metadata.google.internal", &[&["169.254.169.254"]]),
        ("mixed.test", &[&["8.8.8.8", "10.0.0.1"]]),
        ("mixed6.test", &[&["2606:4700::1111", "fd00::1"]]),
        ("mapped.test", &[&["::ffff:127.0.0.1"]]),
        ("none.test", &[&[]]),
        ("public.test", &[&["8.8.8.8", "2606:4700::1111"]]),
        ("xn--bcher-kva.test", &[&["127.0.0.1"]]),
    ]);
    let cases = [
        ("localhost", NOT),
        ("LOCALHOST", NOT),
        ("localhost.", NOT),
        ("ｌｏｃａｌｈｏｓｔ", NOT),
        ("ⓛocalhost", NOT),
        ("local\u{ad}host", NOT),
        ("metadata.google.internal", NOT),
        ("mixed.test", NOT),
        ("mixed6.test", NOT),
        ("mapped.test", NOT),
        ("bücher.test", NOT),
        ("none.test", Err(FetchError::Unreachable)),
        ("unknown.test", Err(FetchError::Unreachable)),
        ("public.test", Ok("8.8.8.8")),
    ];
    answers(&Egress::new(Vec::new(), resolver), &cases).await;
}

#[tokio::test]
async fn named_networks_are_allowed_and_no_others() {
    let resolver = names(&[("db.test", &[&["10.1.2.3"]]), ("both.test", &[&["10.1.2.3", "10.2.0.1"]])]);
    let egress = Egress::new(networks(&["10.1.0.0/16", "fd00::/8", "2002:a01::/32"]), resolver);
    let cases = [
        ("10.1.2.3", Ok("10.1.2.3")),
        ("167838211", Ok("10.1.2.3")),
        ("::ffff:10.1.2.3", Ok("::ffff:10.1.2.3")),
        ("fd00::1", Ok("fd00::1")),
        ("2002:a01::1", Ok("2002:a01::1")),
        ("db.test", Ok("10.1.2.3")),
        ("8.8.8.8", Ok("8.8.8.8")),
        ("both.test", NOT),
        ("10.2.0.1", NOT),
        ("127.0.0.1", NOT),
        ("64:ff9b::10.1.2.3", NOT),
        ("::10.1.2.3", NOT),
    ];
    answers(&egress, &cases).await;
    assert!(egress.names([10, 1, 2, 3].into()));
    assert!(!egress.names([8, 8, 8, 8].into()));
}

#[tokio::test]
async fn every_lookup_is_checked_anew_and_made_once() {
    let resolver = names(&[("rebinds.test", &[&["8.8.8.8"], &["127.0.0.1"]])]);
    let egress = Egress::new(Vec::new(), Arc::clone(&resolver) as Arc<dyn Resolve>);
    answers(&egress, &[("rebinds.test", Ok("8.8.8.8"))]).await;
    assert_eq!(resolver.lookups.load(Ordering::Relaxed), 1);
    answers(&egress, &[("rebinds.test", NOT)]).await;
    assert_eq!(resolver.lookups.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn addresses_to_try_are_bounded() {
    let list = ["8.8.8.8"; 40];
    let egress = Egress::new(Vec::new(), names(&[("many.test", &[&list])]));
    assert_eq!(egress.resolve("many.test", 5432).await, Ok(vec!["8.8.8.8:5432".parse().unwrap(); 16]));
}

#[tokio::test]
async fn the_system_resolver_knows_localhost() {
    let found = SystemResolver::default().resolve("localhost").await.unwrap();
    assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
}
