//! What commands say when the database refuses them: the cause, and what to do.

use std::net::TcpListener;

use sqlx::ConnectOptions;

use crate::support::cluster::database;
use crate::support::process::Site;

const PASSWORD: &str = "hunter2";

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_database_are_named_with_a_remedy() {
    let database = database().await;
    let role = format!("{}_guest", database.options.get_database().unwrap());
    database.execute(&format!("create role {role} login")).await;
    let full = format!("{}_full", database.options.get_database().unwrap());
    database.execute(&format!("create role {full} login connection limit 0")).await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let as_role = |name: &str| database.options.clone().username(name).password(PASSWORD);
    let url = |options: sqlx::postgres::PgConnectOptions| options.to_url_lossy().to_string();
    let table = [
        (url(as_role("stranger")), "role \"stranger\" does not exist", "pg_hba.conf"),
        (
            url(database.options.clone().database("nowhere").password(PASSWORD)),
            "database \"nowhere\" does not exist",
            "create it with",
        ),
        (url(as_role(&role)), "permission denied", "database.owner_url"),
        (url(as_role(&full)), "too many connections", "database.max_connections"),
        (
            format!("postgres://waggle:{PASSWORD}@{closed}/x"),
            "Connection refused",
            "PostgreSQL runs and listens there",
        ),
        (
            format!("postgres://waggle:{PASSWORD}@%2Fnowhere/x"),
            "No such file or directory",
            "the directory of the socket",
        ),
    ];
    for (url, cause, remedy) in table {
        let site = Site::new().set("DATABASE_URL", url).set("WAGGLE_LOG__FORMAT", "text");
        let status = site.client("migrate").arg("--status").output().await.unwrap();
        let error = String::from_utf8(status.stderr).unwrap();
        assert_eq!(status.status.code(), Some(1), "{error}");
        assert!(error.contains(cause) && error.contains(remedy), "{cause}: {error}");
        assert!(!error.contains(PASSWORD) && !error.contains("at line"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for role in [role, full] {
        database.execute(&format!("drop owned by {role}; drop role {role}")).await;
    }
}
