//! A web service on a host of its own: `axum_hello tap:fw0 192.0.2.1/24`, then
//! `curl http://192.0.2.1:8080/`.

use axum::{Router, extract::Path, routing::get};
use floodwall::net::{Network, TcpListener};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or("tap:fw0".to_owned());
    let address = args.next().unwrap_or("192.0.2.1/24".to_owned());
    let network = Network::builder().device(&device).address(&address).start().await?;
    let listener = TcpListener::bind(&network, "[::]:8080").await?;
    let bytes = |Path(n): Path<usize>| async move { vec![b'f'; n.min(1 << 24)] };
    let pages = Router::new()
        .route("/", get(|| async { "Floodwall answers.\n" }))
        .route("/bytes/{n}", get(bytes));
    axum::serve(listener, pages).await
}
