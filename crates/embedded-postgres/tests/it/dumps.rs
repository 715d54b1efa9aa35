//! Dumps of running and stopped databases, and their restoration.

use std::fs::File;

use embedded_postgres::{Embedded, EmbeddedError};

use crate::support::{Site, connect, create_table, insert, rows};

#[tokio::test]
async fn dump_of_a_running_or_stopped_database_is_restored() {
    let site = Site::new();
    let embedded = site.start().await;
    let mut connection = connect(&embedded).await;
    create_table(&mut connection).await;
    insert(&mut connection, 7).await;
    let [running, stopped] = ["running", "stopped"].map(|name| site.root.path().join(name));
    Embedded::dump(site.options(), File::create(&running).unwrap()).await.unwrap();
    insert(&mut connection, 8).await;
    drop(connection);
    embedded.stop().await;
    Embedded::dump(site.options(), File::create(&stopped).unwrap()).await.unwrap();

    for (dump, expected) in [(running, vec![7_i64]), (stopped, vec![7, 8])] {
        let other = Site::new();
        let embedded = other.start().await;
        embedded.restore(File::open(&dump).unwrap()).await.unwrap();
        assert_eq!(rows(&embedded).await, expected);
        let again = embedded.restore(File::open(&dump).unwrap()).await.unwrap_err();
        assert!(
            matches!(&again, EmbeddedError::ToolFailed { output, .. } if output.contains("already exists")),
            "{again}"
        );
        embedded.stop().await;
    }
}

#[tokio::test]
async fn dump_of_no_database_is_refused_and_creates_none() {
    let site = Site::new();
    let nowhere = File::create(site.root.path().join("dump")).unwrap();
    let refused = Embedded::dump(site.options(), nowhere).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("there is no database in {}", site.data_dir().display()));
    assert!(!site.data_dir().exists());
}
