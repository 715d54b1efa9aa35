//! What queries find, and what they find first, in a small library in several languages.

use search::{Field, Index, Query};

/// Key, name, title, description and text of each document.
const LIBRARY: [[&str; 5]; 30] = [
    [
        "doc://billing/refunds",
        "refunds",
        "Refund policy",
        "When customers get their money back",
        "A refund is paid within 14 days. Shipping is not refunded. Write to the billing team.",
    ],
    [
        "doc://billing/invoices",
        "invoices",
        "Invoices",
        "How invoices are numbered and sent",
        "Invoices are sent on the first of each month. A refund creates a credit note.",
    ],
    [
        "doc://billing/tax",
        "tax",
        "Value added tax",
        "VAT by country",
        "Invoices show the tax rate of the customer's country: 19 % in Germany, 20 % in France.",
    ],
    [
        "doc://ops/deploy",
        "deploy",
        "Deployment guide",
        "Rolling out a release",
        "Deployments run in three stages. Roll back with deployctl undo. Each release is signed.",
    ],
    [
        "doc://ops/oncall",
        "on-call",
        "On-call handbook",
        "Who answers alerts at night",
        "An alert pages the engineer on duty. Escalate after 15 minutes. Releases are frozen during incidents.",
    ],
    [
        "doc://ops/postgres",
        "postgres",
        "PostgreSQL operations",
        "Backups, replicas, upgrades",
        "Set max_connections and shared_buffers. The pool's maxConnections must be smaller. Vacuum at night.",
    ],
    [
        "doc://ops/backup",
        "backup",
        "Backups",
        "How data is saved and restored",
        "Backups of PostgreSQL are taken each night and restored once a week as a test.",
    ],
    [
        "doc://api/errors",
        "errors",
        "Error codes",
        "Every error of the API",
        "rate_limited: retry after the time in Retry-After. unauthenticated: the key is unknown.",
    ],
    [
        "doc://api/limits",
        "limits",
        "Rate limits",
        "Requests per second and quotas",
        "Each key has 200 requests per second. Past it the error is rate_limited.",
    ],
    [
        "doc://de/krankheit",
        "Krankenversicherung",
        "Gesetzliche Krankenversicherung",
        "Beiträge und Leistungen",
        "Der Beitrag wird vom Arbeitgeber und vom Arbeitnehmer getragen. Die Versichertenkarte gilt in ganz Europa.",
    ],
    [
        "doc://de/haftpflicht",
        "Haftpflicht",
        "Private Haftpflichtversicherung",
        "Schäden an fremden Sachen",
        "Die Haftpflichtversicherung zahlt, wenn fremdes Eigentum beschädigt wird. Die Selbstbeteiligung beträgt 150 Euro.",
    ],
    [
        "doc://de/bahn",
        "Fahrpläne",
        "Fahrpläne der Straßenbahn",
        "Linien und Haltestellen",
        "Die Straßenbahn fährt alle zehn Minuten zum Hauptbahnhof. Größere Gruppen melden sich an.",
    ],
    [
        "doc://de/urlaub",
        "Urlaub",
        "Urlaubsantrag",
        "Wie Urlaub beantragt wird",
        "Der Urlaubsantrag ist vier Wochen vorher zu stellen. Resturlaub verfällt Ende März.",
    ],
    [
        "doc://fr/cafe",
        "Café",
        "Le café du quartier",
        "Horaires d'ouverture",
        "Le café est ouvert tous les jours de 8 h à 20 h. Crème brûlée et thé à la menthe.",
    ],
    [
        "doc://fr/ecole",
        "École",
        "École élémentaire",
        "Inscription des élèves",
        "L'inscription à l'école se fait à la mairie. La rentrée a lieu en septembre.",
    ],
    [
        "doc://es/manana",
        "mañana",
        "Planes para mañana",
        "Reunión con el equipo",
        "La reunión empieza a las nueve. Mañana se decide el presupuesto del año.",
    ],
    [
        "doc://pl/lodz",
        "Łódź",
        "Biuro w Łodzi",
        "Adres i dojazd",
        "Biuro znajduje się przy ulicy Piotrkowskiej, blisko dworca Łódź Fabryczna.",
    ],
    [
        "doc://ru/otpusk",
        "Отпуск",
        "Заявление на отпуск",
        "Как оформить отпуск",
        "Заявление подаётся за две недели. Расчёт отпускных делает бухгалтерия.",
    ],
    [
        "doc://el/athina",
        "Αθήνα",
        "Γραφείο στην Αθήνα",
        "Διεύθυνση",
        "Το γραφείο βρίσκεται στην οδό Ερμού, κοντά στον σταθμό.",
    ],
    [
        "doc://tr/istanbul",
        "İstanbul",
        "İstanbul ofisi",
        "Adres ve ulaşım",
        "Ofis Kadıköy iskelesine yakındır. Işıklar akşam yedide söner.",
    ],
    [
        "doc://zh/tianqi",
        "天气",
        "北京天气预报",
        "每日天气和空气质量",
        "今天北京晴，最高气温二十五度。明天上海有雨，出门请带伞。",
    ],
    [
        "doc://zh/tuikuan",
        "退款",
        "退款政策",
        "客户如何申请退款",
        "退款在十四天内支付。运费不予退还。如有疑问请联系财务部门。",
    ],
    [
        "doc://zh/bushu",
        "部署",
        "部署指南",
        "如何发布新版本",
        "发布分为三个阶段。回滚请使用部署工具。每个版本都有签名。",
    ],
    ["doc://zh/jing", "京剧", "京剧入门", "生旦净丑", "京剧是中国的传统戏曲，起源于十八世纪末的北京。"],
    [
        "doc://ja/tenki",
        "天気予報",
        "東京の天気予報",
        "毎日の天気",
        "今日の東京は晴れです。明日は雨が降るでしょう。データベースは毎晩更新されます。",
    ],
    [
        "doc://ja/henkin",
        "返金",
        "返金ポリシー",
        "お客様への返金について",
        "返金は十四日以内に行われます。サーバーの障害による返金は別途ご相談ください。",
    ],
    [
        "doc://ja/sushi",
        "寿司",
        "すしの作り方",
        "ご飯と魚",
        "酢飯を用意し、新鮮な魚をのせます。わさびは少しだけ。",
    ],
    [
        "doc://ko/nalssi",
        "날씨",
        "서울 날씨",
        "매일의 날씨 예보",
        "오늘 서울은 맑습니다. 내일은 비가 오겠습니다. 우산을 가져가세요.",
    ],
    ["doc://th/akat", "อากาศ", "พยากรณ์อากาศกรุงเทพ", "อากาศประจำวัน", "วันนี้กรุงเทพมีเมฆมาก พรุ่งนี้ฝนจะตก อย่าลืมร่ม"],
    ["doc://hi/mausam", "मौसम", "दिल्ली का मौसम", "दैनिक पूर्वानुमान", "आज दिल्ली में धूप रहेगी। कल बारिश हो सकती है।"],
];

/// Queries, each with the keys that it finds first, without `doc://`; `-` where it finds nothing.
const QUERIES: [(&str, &str); 60] = [
    // Names above titles and descriptions above text.
    ("refund", "billing/refunds billing/invoices"),
    ("refunds", "billing/refunds"),
    ("invoices", "billing/invoices billing/tax"),
    ("error", "api/errors api/limits"),
    ("rate limited", "api/limits api/errors"),
    ("backups", "ops/backup ops/postgres"),
    ("postgresql", "ops/postgres ops/backup"),
    ("release", "ops/deploy ops/oncall"),
    ("billing team", "billing/refunds"),
    ("customer country", "billing/tax"),
    ("night alert", "ops/oncall"),
    // All words must occur.
    ("refund invoices", "billing/invoices"),
    ("refund postgres", "-"),
    ("absent", "-"),
    // Prefixes of the last word.
    ("deploym", "ops/deploy"),
    ("roll deploy", "ops/deploy"),
    ("vac", "ops/postgres"),
    ("rate lim", "api/limits api/errors"),
    ("rat", "api/limits api/errors billing/tax"),
    // Identifiers.
    ("max_connections", "ops/postgres"),
    ("maxConnections", "ops/postgres"),
    ("max connections", "ops/postgres"),
    ("Retry-After", "api/errors"),
    ("ops oncall", "ops/oncall"),
    // German: umlauts, ß, compounds by prefix and by part.
    ("strassenbahn", "de/bahn"),
    ("Straßenbahn Hauptbahnhof", "de/bahn"),
    ("STRASSENBAHN", "de/bahn"),
    ("großere", "de/bahn"),
    ("beitrage", "de/krankheit"),
    ("haftpflichtvers", "de/haftpflicht"),
    ("krankenver", "de/krankheit"),
    ("versicherung", "de/krankheit de/haftpflicht"),
    ("bahnhof", "de/bahn"),
    ("beteiligung", "de/haftpflicht"),
    ("urlaub", "de/urlaub"),
    ("antrag", "de/urlaub"),
    // Accents and other alphabets.
    ("cafe", "fr/cafe"),
    ("creme brulee", "fr/cafe"),
    ("ecole", "fr/ecole"),
    ("ÉCOLE", "fr/ecole"),
    ("manana", "es/manana"),
    ("lodz", "pl/lodz"),
    ("отпуск", "ru/otpusk"),
    ("расчет", "ru/otpusk"),
    ("αθηνα", "el/athina"),
    ("istanbul", "tr/istanbul"),
    ("मौसम", "hi/mausam"),
    // Chinese, Japanese, Korean, Thai.
    ("北京", "zh/tianqi zh/jing"),
    ("天气", "zh/tianqi"),
    ("北京天气", "zh/tianqi"),
    ("退款", "zh/tuikuan"),
    ("京", "zh/jing zh/tianqi ja/tenki"),
    ("京剧", "zh/jing"),
    ("天気", "ja/tenki"),
    ("返金 サーバー", "ja/henkin"),
    ("ﾃﾞｰﾀﾍﾞｰｽ", "ja/tenki"),
    ("すし", "ja/sushi"),
    ("서울 날씨", "ko/nalssi"),
    ("우산", "ko/nalssi"),
    ("อากาศ", "th/akat"),
];

fn found(index: &Index<&str, ()>, query: &str) -> String {
    let hits = index.search(&Query::parse(query), 20, |()| true);
    let keys: Vec<_> = hits.iter().map(|hit| hit.key.trim_start_matches("doc://")).collect();
    if keys.is_empty() { "-".to_owned() } else { keys.join(" ") }
}

#[test]
fn queries_find_what_is_wanted_first() {
    let mut index = Index::new();
    for [key, name, title, description, text] in LIBRARY {
        let fields = [Field::Name, Field::Title, Field::Description, Field::Uri, Field::Text];
        index.insert(key, (), fields.into_iter().zip([name, title, description, key, text]));
    }
    let wrong: Vec<_> = QUERIES
        .iter()
        .map(|(query, expected)| (*query, *expected, found(&index, query)))
        .filter(|(_, expected, found)| expected != found)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn words_that_occur_are_not_looked_for_inside_others() {
    let mut index = Index::new();
    index.insert("whole", (), [(Field::Text, "port")]);
    index.insert("part", (), [(Field::Name, "airports")]);
    assert_eq!(found(&index, "port"), "whole");
    assert_eq!(found(&index, "rport"), "part");
    assert_eq!(found(&index, "irp"), "-");
}
