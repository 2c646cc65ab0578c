for (const button of document.querySelectorAll("button[data-policy]"))
  button.addEventListener("click", async () => {
    const said = document.getElementById("said");
    said.textContent = "asking";
    try {
      const answer = await fetch("../rest/scheduling/v1/" + button.dataset.policy, {
        method: "PUT",
        headers: {"Authorization": "Bearer " + document.getElementById("token").value.trim(),
          "Content-Type": "application/json"},
        body: JSON.stringify({status: button.dataset.status})});
      const reply = await answer.json();
      if (answer.ok) location.reload();
      else said.textContent = reply.code + ": " + reply.data.reason;
    } catch (error) { said.textContent = "no answer: " + error.message; }
  });
