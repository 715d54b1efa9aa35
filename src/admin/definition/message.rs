//! Validation of the messages of a prompt.

use super::checks::{self, MimeText, check_base64, check_text, checked_mime};
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::message::{
    ContentBlock, ContentKind, EmbeddedResource, Media, PromptMessage, ResourceLink, is_template,
};

/// Validates everything about a message that its types do not guarantee, except that its texts compile.
pub(crate) fn checked(message: PromptMessage, index: usize) -> Result<PromptMessage, Fault> {
    let place = format!("messages[{index}].content");
    let within = |member: &str| format!("{place}.{member}");
    let ContentBlock { mut kind, annotations, meta } = message.content;
    match &mut kind {
        ContentKind::Text(text) => check_text(&within("text"), text)?,
        ContentKind::Image(media) | ContentKind::Audio(media) => check_media(&place, media)?,
        ContentKind::ResourceLink(link) => check_link(&place, link)?,
        ContentKind::Resource(resource) => check_resource(&within("resource"), resource)?,
    }
    let annotations = checks::annotations(&within("annotations"), annotations)?;
    let meta = checks::meta(&within("_meta"), meta)?;
    Ok(PromptMessage { role: message.role, content: ContentBlock { kind, annotations, meta } })
}

fn check_media(place: &str, media: &Media) -> Result<(), Fault> {
    check_base64(&format!("{place}.data"), &media.data)?;
    check_mime(place, &media.mime_type)
}

fn check_link(place: &str, link: &mut ResourceLink) -> Result<(), Fault> {
    let within = |member: &str| format!("{place}.{member}");
    settle_uri(&within("uri"), &mut link.uri)?;
    check_text(&within("name"), &link.name)?;
    link.title.iter().try_for_each(|title| check_text(&within("title"), title))?;
    link.description.iter().try_for_each(|description| check_text(&within("description"), description))?;
    link.mime_type.iter().try_for_each(|mime| check_mime(place, mime))?;
    link.icons = checks::icons(&within("icons"), link.icons.take())?;
    Ok(())
}

fn check_resource(place: &str, resource: &mut EmbeddedResource) -> Result<(), Fault> {
    let within = |member: &str| format!("{place}.{member}");
    settle_uri(&within("uri"), &mut resource.uri)?;
    resource.mime_type.iter().try_for_each(|mime| check_mime(place, mime))?;
    if resource.text.is_some() && resource.blob.is_some() {
        let wrong = "must have text or blob, or neither to refer to a registered resource";
        return Err(Fault::invalid_params(format!("{place} {wrong}")));
    }
    resource.text.iter().try_for_each(|text| check_text(&within("text"), text))?;
    resource.blob.iter().try_for_each(|blob| check_base64(&within("blob"), blob))?;
    resource.meta = checks::meta(&within("_meta"), resource.meta.take())?;
    Ok(())
}

/// Validates a URI, and replaces an IRI by its URI. A URI that is a template is validated when it is rendered.
fn settle_uri(field: &str, uri: &mut String) -> Result<(), Fault> {
    check_text(field, uri)?;
    if is_template(uri) {
        return Ok(());
    }
    let parsed =
        ResourceUri::parse(uri).map_err(|error| Fault::invalid_params(format!("{field} {error}")))?;
    *uri = parsed.to_string();
    Ok(())
}

fn check_mime(place: &str, mime: &str) -> Result<(), Fault> {
    let field = format!("{place}.mimeType");
    let wrong = |error| Fault::invalid_params(format!("{field}: {error}"));
    checked_mime(&field, MimeText::try_from(mime.to_owned()).map_err(wrong)?).map(drop)
}
