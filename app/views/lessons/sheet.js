// Reads a sheet in the browser and passes on the part that is restored; the file itself is not sent to the server.
const RESTORED_PART = /<script type="application\/json" id="sheet">[^]*?<\/script>/;

export default function ({ parentElement, setStateValue }) {
  const field = parentElement.querySelector("input");
  field.onchange = async () => {
    if (!field.files.length) return;
    const found = RESTORED_PART.exec(await field.files[0].text());
    setStateValue("sheet", { kept: found ? found[0] : "", chosen: Date.now() });
  };
  field.onclick = () => { field.value = ""; }; // so that the same file can be chosen again
}
