//! Appends a note to a table of an embedded database, and prints all notes.
//!
//! ```sh
//! cargo run --package embedded-postgres --example notes -- /tmp/notes "buy milk"
//! ```

use std::error::Error;
use std::io::Write;

use embedded_postgres::{Embedded, EmbeddedOptions};
use sqlx::{ConnectOptions, Connection};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let data_dir = arguments.next().ok_or("usage: notes DIRECTORY [NOTE]")?;
    let options =
        EmbeddedOptions { path: std::env::var_os("PATH"), ..EmbeddedOptions::new("notes", data_dir) };
    let embedded = Embedded::start(options).await?;
    let mut connection = embedded.connect_options().connect().await?;
    sqlx::query("create table if not exists notes (id bigserial primary key, text text not null)")
        .execute(&mut connection)
        .await?;
    if let Some(note) = arguments.next() {
        sqlx::query("insert into notes (text) values ($1)").bind(note).execute(&mut connection).await?;
    }
    let notes: Vec<String> =
        sqlx::query_scalar("select text from notes order by id").fetch_all(&mut connection).await?;
    connection.close().await?;
    embedded.stop().await;
    let mut out = std::io::stdout();
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}
